/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package modules

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/apiserver"
)

type intent = volumesv1alpha1.VolumeAttachmentIntent

var dataset = schema.GroupVersionKind{Group: "data.example.com", Version: "v1", Kind: "Dataset"}

// operator is the API server beside the operator of the example. The test does what Hawser does.
type operator struct {
	*testing.T
	ctx        context.Context
	api        client.WithWatch
	kubeconfig string
}

func TestTheOperatorOfTheExampleKeepsItsIntents(t *testing.T) {
	config, api := apiserver.Start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	o := operator{t, ctx, api, apiserver.Kubeconfig(t, config)}
	directory := filepath.Join(apiserver.Root(), "examples", "operator")
	apiserver.Kubectl(t, o.kubeconfig, "", "apply", "-k", directory)
	apiserver.Kubectl(t, o.kubeconfig, "", "wait", "--for=condition=Established", "crd/datasets.data.example.com")
	o.start(config)
	apiserver.Kubectl(t, o.kubeconfig, "", "apply", "-f", filepath.Join(directory, "dataset.yaml"))

	first, second := o.created("genomes-node-a"), o.created("genomes-node-b")
	if owner := metav1.GetControllerOf(first); owner == nil || owner.Kind != dataset.Kind || !first.Spec.ReadOnly ||
		first.Spec.NodeName != "node-a" {
		t.Errorf("the intent of node-a: %+v of owner %+v, want a read-only one of the Dataset", first.Spec, owner)
	}
	o.report(first, volumesv1alpha1.ConditionReady, metav1.ConditionTrue, volumesv1alpha1.ReasonReady)
	o.expect(metav1.ConditionFalse, volumesv1alpha1.ReasonProgressing)
	o.report(second, volumesv1alpha1.ConditionReady, metav1.ConditionFalse, volumesv1alpha1.ReasonStaging)
	o.expect(metav1.ConditionFalse, volumesv1alpha1.ReasonStaging)
	o.report(second, volumesv1alpha1.ConditionReady, metav1.ConditionTrue, volumesv1alpha1.ReasonReady)
	nodes := o.expect(metav1.ConditionTrue, "OnAllNodes").Nodes
	if len(nodes) != 2 || nodes[1].Name != "node-b" || nodes[1].Path != second.Status.Path {
		t.Errorf("nodes of the status: %+v, want two, node-b with the path %s", nodes, second.Status.Path)
	}
	o.report(second, volumesv1alpha1.ConditionStalled, metav1.ConditionTrue, volumesv1alpha1.ReasonVolumeModeMismatch)
	o.expect(metav1.ConditionFalse, volumesv1alpha1.ReasonVolumeModeMismatch)

	second.Finalizers = []string{volumesv1alpha1.ReleaseFinalizer}
	if err := api.Update(ctx, second); err != nil {
		t.Fatal(err)
	}
	apiserver.Kubectl(t, o.kubeconfig, "", "patch", "dataset", "genomes", "-n", "datasets", "--type=merge",
		`-p={"spec":{"nodes":["node-a"]}}`)
	o.expect(metav1.ConditionTrue, "OnAllNodes") // node-b is not among them any more
	o.statusOf("node-b", volumesv1alpha1.ReasonReleasing)
	released := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	if err := api.Patch(ctx, second, released); err != nil {
		t.Fatal(err)
	}
	o.statusOf("node-b", "")
}

// start builds the operator and runs it with the rights of its account. It has to end in order.
func (o operator) start(config *rest.Config) {
	o.Helper()
	program := filepath.Join(o.TempDir(), "operator")
	build := exec.CommandContext(o.ctx, "go", "build", "-o", program, ".")
	build.Dir = filepath.Join(apiserver.Root(), "examples", "operator")
	if output, err := build.CombinedOutput(); err != nil {
		o.Fatalf("building the operator: %v\n%s", err, output)
	}
	account := apiserver.ServiceAccount(config, "datasets", "dataset-operator")
	var log bytes.Buffer
	running := exec.CommandContext(context.WithoutCancel(o.ctx), program) // the test's context ends before its cleanup
	running.Env = append(os.Environ(), "KUBECONFIG="+apiserver.Kubeconfig(o.T, account))
	running.Stdout, running.Stderr = &log, &log
	if err := running.Start(); err != nil {
		o.Fatal(err)
	}
	o.Cleanup(func() {
		if err := errors.Join(running.Process.Signal(syscall.SIGTERM), running.Wait()); err != nil || o.Failed() {
			o.Errorf("the operator ended with the error %v, want none:\n%s", err, log.String())
		}
	})
}

// created is the intent of that name, once the operator has created it.
func (o operator) created(name string) *intent {
	o.Helper()
	e := o.until(&volumesv1alpha1.VolumeAttachmentIntentList{}, func(e watch.Event) bool {
		i, ok := e.Object.(*intent)
		return ok && i.Name == name
	})
	return e.Object.(*intent)
}

// report writes a condition and the path into the intent's status, as Hawser does.
func (o operator) report(i *intent, kind string, value metav1.ConditionStatus, reason string) {
	o.Helper()
	i.Status.ObservedGeneration, i.Status.Path = i.Generation, "/var/lib/hawser/published/datasets/"+i.Name
	meta.SetStatusCondition(&i.Status.Conditions, metav1.Condition{Type: kind, Status: value, Reason: reason,
		ObservedGeneration: i.Generation})
	if err := o.api.Status().Update(o.ctx, i); err != nil {
		o.Fatalf("writing the status of intent %s: %v", i.Name, err)
	}
}

// status is that of a Dataset.
type status struct {
	Conditions []metav1.Condition `json:"conditions"`
	Nodes      []struct {
		Name   string `json:"name"`
		Path   string `json:"path"`
		Reason string `json:"reason"`
	} `json:"nodes"`
}

// expect waits until the Dataset has the condition Ready with this value and reason, for its present spec.
func (o operator) expect(value metav1.ConditionStatus, reason string) status {
	o.Helper()
	return o.untilStatus(func(generation int64, s status) bool {
		ready := meta.FindStatusCondition(s.Conditions, "Ready")
		return ready != nil && ready.Status == value && ready.Reason == reason && ready.ObservedGeneration == generation
	})
}

// statusOf waits until the Dataset has this reason for the node. Without a reason, until it does not have the node.
func (o operator) statusOf(node, reason string) {
	o.Helper()
	o.untilStatus(func(_ int64, s status) bool {
		for _, n := range s.Nodes {
			if n.Name == node {
				return n.Reason == reason && reason != ""
			}
		}
		return reason == ""
	})
}

// untilStatus returns the status of the Dataset once it is as it should be.
func (o operator) untilStatus(is func(generation int64, s status) bool) status {
	o.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(dataset.GroupVersion().WithKind(dataset.Kind + "List"))
	var got struct {
		Status status `json:"status"`
	}
	o.until(list, func(e watch.Event) bool {
		d, ok := e.Object.(*unstructured.Unstructured)
		if !ok {
			return false
		}
		got.Status = status{}
		err := runtime.DefaultUnstructuredConverter.FromUnstructured(d.Object, &got)
		return err == nil && is(d.GetGeneration(), got.Status)
	})
	return got.Status
}

// until returns the first event of the objects in the operator's namespace that is as it should be. The objects that
// exist are events too.
func (o operator) until(list client.ObjectList, is func(e watch.Event) bool) *watch.Event {
	o.Helper()
	changes, err := o.api.Watch(o.ctx, list, client.InNamespace("datasets"))
	if err != nil {
		o.Fatalf("watching: %v", err)
	}
	e, err := watchtools.UntilWithoutRetry(o.ctx, changes, func(e watch.Event) (bool, error) { return is(e), nil })
	if err != nil {
		o.Fatalf("what the operator was to do did not come: %v", err)
	}
	return e
}
