/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package images

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hawser-io/hawser/test/csiloop/ledger"
	"github.com/hawser-io/hawser/test/system"
)

// hawserRoot is where the agents keep their records on each node.
const hawserRoot = "/var/lib/hawser"

// goneWithNode are the objects that upstream and the local cluster have for the node that goes.
var goneWithNode = []string{"Node /" + goneNode, "CSINode /" + goneNode, "Lease kube-node-lease/" + goneNode,
	"Pod localcluster/hawser-agent-" + goneNode}

// inventory is what there is in the cluster and on its nodes, by name. All objects of all kinds are in it, so that
// nothing can be forgotten.
type inventory map[string]string

// awaitDrivers waits until the drivers are on the nodes: from then on nothing changes by itself.
func (s suite) awaitDrivers(t *testing.T) {
	t.Helper()
	for _, node := range s.Nodes {
		_, err := system.Await(limited(t), s.System, &storagev1.CSINodeList{}, client.ObjectKey{Name: node},
			func(n *storagev1.CSINode) bool {
				return n != nil && slices.ContainsFunc(n.Spec.Drivers, func(d storagev1.CSINodeDriver) bool {
					return d.Name == system.DriverName
				})
			})
		s.explain(t, err)
	}
}

// inventory fails for a moment while the API server forgets a kind.
func (s suite) inventory(t *testing.T) (inventory, error) {
	t.Helper()
	seen, err := s.objects(limited(t))
	if err != nil {
		return nil, err
	}
	for _, node := range []string{nodeA, nodeB} {
		for _, point := range s.mountPoints(t, node) {
			seen["node "+node+", mount "+point] = ""
		}
		for _, file := range s.records(t, node) {
			seen["node "+node+", record "+file] = ""
		}
	}
	devices, err := system.LoopDevicesOn(s.Dir)
	check(t, err)
	for _, device := range devices {
		seen["loop device "+device] = ""
	}
	entries, err := ledger.Read(s.BackingDir())
	check(t, err)
	for _, left := range unfinished(entries) {
		seen["ledger of the driver: "+left] = ""
	}
	return seen, nil
}

// objects lists all objects of all kinds that the API server serves.
func (s suite) objects(ctx context.Context) (inventory, error) {
	config, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig())
	if err != nil {
		return nil, err
	}
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
	served, err := discovery.NewDiscoveryClientForConfigOrDie(config).ServerPreferredResources()
	if err != nil {
		return nil, err
	}
	lister := dynamic.NewForConfigOrDie(config)
	seen := inventory{}
	for _, group := range served {
		version, err := schema.ParseGroupVersion(group.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, resource := range group.APIResources {
			if !slices.Contains(resource.Verbs, "list") || unremarkable(resource.Name) {
				continue
			}
			list, err := lister.Resource(version.WithResource(resource.Name)).List(ctx, metav1.ListOptions{})
			if err != nil {
				return nil, fmt.Errorf("listing %s of %s: %w", resource.Name, version, err)
			}
			if err := seen.add(list.Items); err != nil {
				return nil, err
			}
		}
	}
	return seen, nil
}

// unremarkable kinds are those of events, which end by themselves, and one that is no object.
func unremarkable(resource string) bool {
	return resource == "events" || resource == "componentstatuses"
}

func (s inventory) add(objects []unstructured.Unstructured) error {
	for i := range objects {
		object := &objects[i]
		name := fmt.Sprintf("%s %s/%s", object.GetKind(), object.GetNamespace(), object.GetName())
		if slices.Contains(goneWithNode, name) {
			continue
		}
		forget(object)
		text, err := json.MarshalIndent(object, "", " ")
		if err != nil {
			return err
		}
		s[name] = string(text)
	}
	return nil
}

// forget removes what upstream changes all the time, or for good: a PersistentVolume keeps the finalizer of its
// attacher.
func forget(object *unstructured.Unstructured) {
	for _, field := range []string{"resourceVersion", "managedFields", "generation"} {
		unstructured.RemoveNestedField(object.Object, "metadata", field)
	}
	switch object.GetKind() {
	case "Lease":
		delete(object.Object, "spec")
	case "Node":
		attached, _, _ := unstructured.NestedSlice(object.Object, "status", "volumesAttached")
		used, _, _ := unstructured.NestedSlice(object.Object, "status", "volumesInUse")
		object.Object["volumes"] = append(attached, used...)
	case "PersistentVolume":
		finalizers := slices.DeleteFunc(object.GetFinalizers(), func(finalizer string) bool {
			return strings.HasPrefix(finalizer, "external-attacher/")
		})
		object.SetFinalizers(append([]string(nil), finalizers...))
	}
	delete(object.Object, "status")
}

// mountPoints of a machine, except for those of the host that it was started with.
func (s suite) mountPoints(t *testing.T, node string) []string {
	t.Helper()
	file, err := os.Open(fmt.Sprintf("/proc/%s/mountinfo", s.machine(t, node)))
	check(t, err)
	defer func() { _ = file.Close() }()
	var points []string
	for lines := bufio.NewScanner(file); lines.Scan(); {
		point := strings.Fields(lines.Text())[4]
		for _, own := range []string{s.Dir, "/var/lib", "/run"} {
			if strings.HasPrefix(point, own+"/") {
				points = append(points, point)
			}
		}
	}
	return points
}

// records are the agent's files on a machine that are about volumes. Its lock, and what it remembers of its reports and
// of the kubelet, stay with its directory; they must not name a volume.
func (s suite) records(t *testing.T, node string) []string {
	t.Helper()
	machine := fmt.Sprintf("/proc/%s/root", s.machine(t, node))
	stays := []string{"lock", "volumes-last-report.json", "volumes-of-kubelet.json"}
	var files []string
	err := filepath.WalkDir(machine+hawserRoot, func(path string, entry fs.DirEntry, err error) error {
		if os.IsNotExist(err) || err == nil && entry.IsDir() {
			return nil
		}
		if err != nil {
			return err
		}
		text, err := os.ReadFile(path)
		if !slices.Contains(stays, entry.Name()) || strings.Contains(string(text), "pvc-") {
			files = append(files, fmt.Sprintf("%s: %s", strings.TrimPrefix(path, machine), text))
		}
		return err
	})
	check(t, err)
	return files
}

// unfinished is what the driver did and did not undo, by its own ledger.
func unfinished(entries []ledger.Entry) []string {
	undoes := map[string]string{"ControllerUnpublishVolume": "ControllerPublishVolume",
		"NodeUnstageVolume": "NodeStageVolume", "NodeUnpublishVolume": "NodePublishVolume"}
	done := map[string]bool{}
	for _, e := range entries {
		if e.Phase != ledger.Effect || e.Code != "OK" {
			continue
		}
		path := e.StagingPath
		if e.TargetPath != "" { // a publication names the stage too, its end does not
			path = e.TargetPath
		}
		where := fmt.Sprintf(" of %s on %s at %s", e.Volume, e.Node, path)
		if undone, undo := undoes[e.Method]; undo {
			delete(done, undone+where)
		} else if slices.Contains(slices.Collect(maps.Values(undoes)), e.Method) {
			done[e.Method+where] = true
		}
	}
	return slices.Sorted(maps.Keys(done))
}

// expectAsBefore waits until everything is as before. No event signals the end of garbage collection, nor that the API
// server has forgotten a kind.
func (s suite) expectAsBefore(t *testing.T, before inventory) {
	t.Helper()
	var different []string
	err := wait.PollUntilContextTimeout(limited(t), time.Second, time.Minute, true,
		func(context.Context) (bool, error) {
			now, err := s.inventory(t)
			if different = before.compare(now); err != nil {
				different = []string{err.Error()}
			}
			return len(different) == 0, nil
		})
	if err != nil {
		t.Fatalf("a minute after the removal there are %d differences from before the installation, want none:\n%s",
			len(different), strings.Join(different, "\n"))
	}
}

func (s inventory) compare(now inventory) []string {
	var different []string
	for name, text := range now {
		if was, found := s[name]; !found {
			different = append(different, "left behind: "+name+" "+text)
		} else if was != text {
			different = append(different, fmt.Sprintf("changed: %s: now\n%s\nbefore\n%s", name, text, was))
		}
	}
	for name := range s {
		if _, found := now[name]; !found {
			different = append(different, "gone: "+name)
		}
	}
	slices.Sort(different)
	return different
}
