/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package kubelet

import (
	"errors"
	"reflect"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// fakeNode is a node whose CSINode refuses changed entries, like the real API.
func fakeNode(drivers ...storagev1.CSINodeDriver) (*Kubelet, *fake.Clientset) {
	meta := metav1.ObjectMeta{Name: "node-a"}
	client := fake.NewClientset(&corev1.Node{ObjectMeta: meta},
		&storagev1.CSINode{ObjectMeta: meta, Spec: storagev1.CSINodeSpec{Drivers: drivers}})
	client.PrependReactor("update", "csinodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
		updated := action.(clienttesting.UpdateAction).GetObject().(*storagev1.CSINode)
		stored, err := client.Tracker().Get(action.GetResource(), "", "node-a")
		if err != nil {
			return true, nil, err
		}
		for _, was := range stored.(*storagev1.CSINode).Spec.Drivers {
			for _, is := range updated.Spec.Drivers {
				if was.Name == is.Name && !reflect.DeepEqual(was, is) {
					return true, nil, errors.New("an entry is immutable")
				}
			}
		}
		return false, nil, nil
	})
	return &Kubelet{Node: "node-a", Client: client}, client
}

func drivers(t *testing.T, client *fake.Clientset) map[string]storagev1.CSINodeDriver {
	t.Helper()
	node, err := client.StorageV1().CSINodes().Get(t.Context(), "node-a", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]storagev1.CSINodeDriver{}
	for _, driver := range node.Spec.Drivers {
		found[driver.Name] = driver
	}
	return found
}

func TestAChangedDriverReplacesItsEntryAndNoOther(t *testing.T) {
	other := storagev1.CSINodeDriver{Name: "other", NodeID: "x"}
	kubelet, client := fakeNode(other, storagev1.CSINodeDriver{Name: "mine", NodeID: "old"})
	info := &csi.NodeGetInfoResponse{
		NodeId: "new", MaxVolumesPerNode: 3,
		AccessibleTopology: &csi.Topology{Segments: map[string]string{"b": "2", "a": "1"}},
	}
	if err := kubelet.list(t.Context(), "mine", info); err != nil {
		t.Fatal(err)
	}
	found := drivers(t, client)
	mine := found["mine"]
	if mine.NodeID != "new" || !reflect.DeepEqual(mine.TopologyKeys, []string{"a", "b"}) || *mine.Allocatable.Count != 3 {
		t.Errorf("entry: %+v", mine)
	}
	if !reflect.DeepEqual(found["other"], other) {
		t.Errorf("the other driver's entry: %+v", found["other"])
	}
	node, err := client.CoreV1().Nodes().Get(t.Context(), "node-a", metav1.GetOptions{})
	if err != nil || node.Labels["a"] != "1" || node.Labels["b"] != "2" {
		t.Errorf("labels %v, error %v", node.Labels, err)
	}

	if err := kubelet.unlist(t.Context(), "mine"); err != nil {
		t.Fatal(err)
	}
	if found = drivers(t, client); len(found) != 1 || found["other"].NodeID != "x" {
		t.Errorf("after the driver went: %v", found)
	}
}

func TestListingADriverAgainWritesNothing(t *testing.T) {
	kubelet, client := fakeNode()
	info := &csi.NodeGetInfoResponse{NodeId: "n"}
	for range 2 {
		if err := kubelet.list(t.Context(), "mine", info); err != nil {
			t.Fatal(err)
		}
	}
	updates := 0
	for _, action := range client.Actions() {
		if action.GetVerb() == "update" {
			updates++
		}
	}
	if updates != 1 {
		t.Errorf("%d updates", updates)
	}
	if driver := drivers(t, client)["mine"]; driver.Allocatable != nil {
		t.Errorf("a driver without a limit got one: %v", driver.Allocatable)
	}
}

func TestADriverThatDoesNotKnowItsNodeIsRefused(t *testing.T) {
	kubelet, client := fakeNode()
	if err := kubelet.list(t.Context(), "mine", &csi.NodeGetInfoResponse{}); err == nil {
		t.Error("no error")
	}
	if found := drivers(t, client); len(found) != 0 {
		t.Errorf("listed nevertheless: %v", found)
	}
}
