/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package images

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/apiserver"
)

// span is a time in which something was not so. It has no end while that lasts.
type span struct {
	what, node string
	from, to   time.Time
}

func (s span) length() time.Duration { return s.to.Sub(s.from) }

func (s span) String() string {
	if s.to.IsZero() {
		return fmt.Sprintf("%s, since %s, not over", s.what, s.from.Format(time.TimeOnly))
	}
	return fmt.Sprintf("%s, from %s for %s", s.what, s.from.Format(time.TimeOnly), s.length().Round(time.Millisecond))
}

// recorder watches intents, node states and the agents' pods. It records each time in which a condition was not True
// that was True when the recorder began, and each time in which a node had no running agent.
type recorder struct {
	sync.Mutex
	clock clock.PassiveClock
	// broken is an image whose containers are no agents.
	broken string
	// conditions that were True in the beginning, by object and type; and the UIDs of these objects.
	conditions map[string]bool
	uids       map[string]types.UID
	// running agents by node and pod.
	running map[string]map[string]bool
	// open spans by their key.
	open            map[string]span
	spells, absence []span
}

// record starts a recorder. It returns once the recorder knows every object.
func (s suite) record(t *testing.T, broken string) *recorder {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig())
	check(t, err)
	watched, err := cache.New(config, cache.Options{Scheme: apiserver.Scheme()})
	check(t, err)
	r := newRecorder(broken, clock.RealClock{})
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- watched.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		check(t, <-ended)
	})
	for _, object := range []client.Object{
		&volumesv1alpha1.VolumeAttachmentIntent{}, &volumesv1alpha1.NodeVolumeState{}, &corev1.Pod{}} {
		informer, err := watched.GetInformer(limited(t), object)
		check(t, err)
		registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerDetailedFuncs{
			AddFunc:    func(object any, initially bool) { r.see(object, initially) },
			UpdateFunc: func(_, object any) { r.see(object, false) },
			DeleteFunc: r.gone,
		})
		check(t, err)
		if !toolscache.WaitForCacheSync(limited(t).Done(), registration.HasSynced) {
			t.Fatalf("the recorder has not received every %T", object)
		}
	}
	return r
}

func newRecorder(broken string, c clock.PassiveClock) *recorder {
	return &recorder{clock: c, broken: broken, conditions: map[string]bool{}, uids: map[string]types.UID{},
		running: map[string]map[string]bool{}, open: map[string]span{}}
}

// see takes an object as it is now.
func (r *recorder) see(object any, initially bool) {
	r.Lock()
	defer r.Unlock()
	switch o := object.(type) {
	case *volumesv1alpha1.VolumeAttachmentIntent:
		r.judge("intent "+o.Namespace+"/"+o.Name, o.Spec.NodeName, o.UID, o.Status.Conditions, initially)
	case *volumesv1alpha1.NodeVolumeState:
		r.judge("node state "+o.Name, o.Name, o.UID, o.Status.Conditions, initially)
	case *corev1.Pod:
		r.seePod(o)
	}
}

func (r *recorder) judge(name, node string, uid types.UID, conditions []metav1.Condition, initially bool) {
	if initially {
		r.uids[name] = uid
		for _, c := range conditions {
			if c.Status == metav1.ConditionTrue {
				r.conditions[name+" "+c.Type] = true
			}
		}
		return
	}
	was, watched := r.uids[name]
	if !watched {
		return
	}
	r.set(&r.spells, span{what: name + " was created again", node: node}, was == uid, "")
	for _, kind := range []string{volumesv1alpha1.ConditionReady, volumesv1alpha1.ConditionPublished} {
		if !r.conditions[name+" "+kind] {
			continue
		}
		now, why := meta.FindStatusCondition(conditions, kind), ": absent"
		if now != nil {
			why = ": " + string(now.Status) + " " + now.Reason
		}
		r.set(&r.spells, span{what: name + " " + kind, node: node}, now != nil && now.Status == metav1.ConditionTrue, why)
	}
}

// seePod keeps whether an agent runs on the pod's node. A pod that is being deleted may have ended already.
func (r *recorder) seePod(pod *corev1.Pod) {
	if pod.Namespace != hawser || pod.Labels["app.kubernetes.io/component"] != "agent" {
		return
	}
	running := pod.DeletionTimestamp == nil && len(pod.Status.ContainerStatuses) == 1 &&
		pod.Status.ContainerStatuses[0].State.Running != nil && pod.Spec.Containers[0].Image != r.broken
	r.setAgent(pod, running)
}

func (r *recorder) setAgent(pod *corev1.Pod, running bool) {
	node := pod.Spec.NodeName
	if r.running[node] == nil {
		r.running[node] = map[string]bool{}
	}
	delete(r.running[node], pod.Name)
	if running {
		r.running[node][pod.Name] = true
	}
	r.set(&r.absence, span{what: "node " + node + " without a running agent", node: node}, len(r.running[node]) > 0, "")
}

// set ends a span if all is well, else begins one.
func (r *recorder) set(ended *[]span, of span, well bool, why string) {
	s, isOpen := r.open[of.what]
	switch {
	case well && isOpen:
		s.to = r.clock.Now()
		*ended = append(*ended, s)
		delete(r.open, of.what)
	case !well && !isOpen:
		r.open[of.what] = span{what: of.what + why, node: of.node, from: r.clock.Now()}
	}
}

func (r *recorder) gone(object any) {
	if unknown, is := object.(toolscache.DeletedFinalStateUnknown); is {
		object = unknown.Obj
	}
	r.Lock()
	defer r.Unlock()
	switch o := object.(type) {
	case *volumesv1alpha1.VolumeAttachmentIntent:
		r.lose("intent " + o.Namespace + "/" + o.Name)
	case *volumesv1alpha1.NodeVolumeState:
		r.lose("node state " + o.Name)
	case *corev1.Pod:
		if o.Namespace == hawser && o.Labels["app.kubernetes.io/component"] == "agent" {
			r.setAgent(o, false)
		}
	}
}

func (r *recorder) lose(name string) {
	if r.uids[name] != "" {
		r.set(&r.spells, span{what: name + " was deleted"}, false, "")
	}
}

// report fails the test for each problem, and logs what was recorded.
func (r *recorder) report(t *testing.T, grace time.Duration) {
	t.Helper()
	for _, problem := range r.problems(grace) {
		t.Error(problem)
	}
	r.Lock()
	defer r.Unlock()
	for _, s := range r.absence {
		t.Log(s)
	}
	for _, s := range r.spells {
		t.Log(s)
	}
	t.Logf("%d conditions of %d objects were watched; %d time(s) one was not True", len(r.conditions), len(r.uids),
		len(r.spells))
}

// problems are the conditions that were not True for longer than the node's agent was absent meanwhile. An agent that
// runs again needs grace to report.
func (r *recorder) problems(grace time.Duration) []string {
	r.Lock()
	defer r.Unlock()
	var found []string
	for _, s := range r.open {
		found = append(found, "when everything was well again: "+s.String())
	}
	for _, s := range r.spells {
		absent := r.absentDuring(s, grace)
		if absent == 0 {
			found = append(found, fmt.Sprintf("%s; the agent of the node ran meanwhile", s))
		} else if s.length() > absent+grace {
			found = append(found, fmt.Sprintf("%s; the agent of the node was absent for %s only, and may report %s later",
				s, absent, grace))
		}
	}
	return found
}

// absentDuring is the longest absence of an agent that overlaps with a span, or ended just before it began.
func (r *recorder) absentDuring(s span, grace time.Duration) time.Duration {
	var longest time.Duration
	for _, absence := range r.absence {
		if absence.node == s.node && absence.from.Before(s.to) && s.from.Before(absence.to.Add(grace)) {
			longest = max(longest, absence.length())
		}
	}
	return longest
}

// watches is how many conditions of a type are watched.
func (r *recorder) watches(kind string) int {
	r.Lock()
	defer r.Unlock()
	found := 0
	for key := range r.conditions {
		if strings.HasSuffix(key, " "+kind) {
			found++
		}
	}
	return found
}
