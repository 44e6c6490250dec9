/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package manager

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/policy"
)

// order records the single objects' writes of a manager.
type order struct {
	mu     sync.Mutex
	writes []string
}

func (o *order) transport(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if what := describeRequest(r); what != "" && r.Method != http.MethodGet {
			o.mu.Lock()
			o.writes = append(o.writes, what+" "+r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:])
			o.mu.Unlock()
		}
		return next.RoundTrip(r)
	})
}

// last is where the last such write is, -1 for none.
func (o *order) last(what string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i, write := range slices.Backward(o.writes) {
		if write == what {
			return i
		}
	}
	return -1
}

func (o *order) count(what string) (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, write := range o.writes {
		if write == what {
			n++
		}
	}
	return n
}

func labelOf(set string) string { return volumesv1alpha1.ReadyLabelPrefix + "default." + set }

// awaitLabel waits until the Node has the label of the set, or has it no more.
func (w *world) awaitLabel(t *testing.T, node, set string, want bool) {
	t.Helper()
	what := map[bool]string{true: "has", false: "does not have"}[want]
	until(t, w, nodeNamed(node), "node "+node+" "+what+" the label of set "+set, func(n *corev1.Node) bool {
		value, has := n.Labels[labelOf(set)]
		return has == want && (!has || value == "true")
	})
}

func nodesLabelled(status metav1.ConditionStatus, reason string) func(*volumesv1alpha1.VolumeAttachmentIntentSet) bool {
	return func(s *volumesv1alpha1.VolumeAttachmentIntentSet) bool {
		c := meta.FindStatusCondition(s.Status.Conditions, volumesv1alpha1.ConditionNodesLabelled)
		return c != nil && c.Status == status && c.Reason == reason
	}
}

// TestNodesAreLabelledWhereTheIntentOfASetIsReady by a manager with the rights and the admission policies that it has
// in an installation.
func TestNodesAreLabelledWhereTheIntentOfASetIsReady(t *testing.T) {
	w := newWorld(t)
	kubectl := w.kubectl(t)
	kubectl("", "apply", "-k", "rbac")
	kubectl("", "apply", "-f", "node-writes/role.yaml")
	kubectl("", "apply", "-k", "admission")
	writes := &order{}
	options := managerOptions{policies: policy.New(clock.RealClock{}), labelNodes: true, transport: writes.transport}
	_, stop := w.manage(t, options)
	const set = "models"
	w.volume(t, set, shared())
	agents := map[string]*agent{}
	for _, node := range []string{"a", "b", "c"} {
		agents[node] = w.node(t, node)
		w.pool(t, node, set)
	}
	models := newSet(set, set, set)
	w.create(t, models)
	for node := range agents {
		w.awaitLabel(t, node, set, true)
	}
	until(t, w, models, "the set reports the label", nodesLabelled(metav1.ConditionTrue, volumesv1alpha1.ReasonAsExpected))
	w.awaitSet(t, models, 3)
	if n := writes.count("PATCH nodes a"); n != 1 {
		t.Errorf("the label of node a cost %d patches, want 1", n)
	}

	// The agent of node b releases nothing, and the label is gone all the same.
	agents["b"].set(func() { agents["b"].hangs = true })
	w.pool(t, "b", "")
	w.awaitLabel(t, "b", set, false)
	until(t, w, intentOf(set, "b"), "the intent of node b is being deleted",
		func(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
			return exists(i) && !i.DeletionTimestamp.IsZero()
		})
	w.stillThere(t, set, "b")
	label, deletion := writes.last("PATCH nodes b"), writes.last("DELETE volumeattachmentintents "+set+"-b")
	if label < 0 || label > deletion || writes.count("PATCH nodes b") != 2 {
		t.Errorf("the manager wrote %v, want the label of node b removed by one patch, before its intent", writes.writes)
	}

	w.powersOff(t, agents["c"])
	w.awaitLabel(t, "c", set, false)
	w.awaitLabel(t, "a", set, true)

	// What happens while no manager runs.
	stop()
	w.delete(t, models) // here is no garbage collection: the intents stay
	w.bareNode(t, "stranger")
	stranger := nodeNamed("stranger")
	w.change(t, stranger, func() {
		stranger.Labels[labelOf("never-there")], stranger.Labels["other.hawser.io/kept"] = "true", "true"
	})
	options.policies = policy.New(clock.RealClock{})
	w.manage(t, options)
	w.awaitLabel(t, "a", set, false)
	w.awaitLabel(t, "stranger", "never-there", false)
	if n := w.nodeNow(t, "stranger"); n.Labels["other.hawser.io/kept"] != "true" {
		t.Errorf("node stranger has the labels %v, want other.hawser.io/kept=true", n.Labels)
	}
}

func TestWithoutTheRightToWriteNodesASetReportsIt(t *testing.T) {
	w := newWorld(t)
	kubectl := w.kubectl(t)
	kubectl("", "apply", "-k", "rbac")
	kubectl("", "apply", "-k", "admission")
	writes, c := &order{}, newStepClock()
	w.manage(t, managerOptions{policies: policy.New(clock.RealClock{}), labelNodes: true, clock: c,
		transport: writes.transport})
	const set = "models"
	w.volume(t, set, shared())
	for _, node := range []string{"a", "b"} {
		w.node(t, node)
		w.pool(t, node, set)
	}
	models, long := newSet(set, set, set), newSet(strings.Repeat("s", 60), "none", set)
	w.create(t, models, long)
	w.awaitSet(t, models, 2)
	until(t, w, models, "the set reports that the manager may not write nodes",
		nodesLabelled(metav1.ConditionFalse, volumesv1alpha1.ReasonNodesForbidden))
	if note := w.awaitEvent(t, set, volumesv1alpha1.ReasonNodesForbidden); !strings.Contains(note, "config/node-writes") {
		t.Errorf("the event is %q, want one that names config/node-writes", note)
	}
	if n := writes.count("PATCH nodes a") + writes.count("PATCH nodes b"); n > 2 {
		t.Errorf("%d patches of two nodes were tried within a minute, want at most one by each that was on its way", n)
	}
	until(t, w, long, "the set reports that its label is too long",
		nodesLabelled(metav1.ConditionFalse, volumesv1alpha1.ReasonLabelTooLong))

	kubectl("", "apply", "-f", "node-writes/role.yaml")
	until(t, w, models, "the set reports the labels", func(s *volumesv1alpha1.VolumeAttachmentIntentSet) bool {
		// A minute passes, and something has the nodes compared.
		c.advance(2 * time.Minute)
		for _, name := range []string{"a", "b"} {
			node := nodeNamed(name)
			w.change(t, node, func() { metav1.SetMetaDataLabel(&node.ObjectMeta, "changed", time.Now().Format("150405.000")) })
		}
		change := s.DeepCopy()
		w.change(t, change, func() {
			metav1.SetMetaDataAnnotation(&change.ObjectMeta, "example.com/changed", time.Now().Format("150405.000"))
		})
		return nodesLabelled(metav1.ConditionTrue, volumesv1alpha1.ReasonAsExpected)(s)
	})
	w.awaitLabel(t, "a", set, true)
	w.awaitLabel(t, "b", set, true)
}
