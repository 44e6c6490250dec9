/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package doctor

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/explain/catalog"
	"github.com/hawser-io/hawser/internal/explain/facts"
)

func codesOf(r *Report) []string {
	codes := []string{}
	for i := range r.Findings {
		codes = append(codes, r.Findings[i].Code)
	}
	return codes
}

func TestAHealthyClusterHasNoFinding(t *testing.T) {
	for name, change := range map[string]func(*world){"without Hawser": func(*world) {},
		"with Hawser": (*world).withHawser} {
		w := newWorld()
		change(w)
		if r := Examine(w.Cluster, noon); len(r.Findings) > 0 || len(r.LeftOut) > 0 {
			t.Errorf("%s: %+v, left out %+v; want nothing", name, r.Findings, r.LeftOut)
		}
	}
}

// instead are what is found after changes that make a situation another one.
var instead = map[string][]string{"an intent uses it": {"HWS633"}, "another driver is full": {"HWS405"},
	"its node is dead": {"HWS710"}, "all are confirmed": {"HWS411"}, "there was no restore": {"HWS411"},
	"no agent ever reported": {"HWS411"}, "it is excused": {"HWS411"}, "the machine is off": {"HWS411"},
	"other nodes": {"HWS705"}, "it is not Ready": {"HWS710"}}

func TestEachFaultIsFoundAndNothingElse(t *testing.T) {
	for _, s := range slices.Concat(situations, hawserSituations) {
		t.Run(s.name, func(t *testing.T) {
			w := newWorld()
			s.broken(w)
			r := Examine(w.Cluster, noon)
			if got := codesOf(r); !slices.Equal(got, []string{s.code}) {
				t.Fatalf("found %v, want %s alone: %+v", got, s.code, r.Findings)
			}
			f := r.Findings[0]
			if f.Severity != s.severity || !strings.Contains(f.Detail, s.detail) {
				t.Errorf("severity %s and detail %q, want %s and a detail with %q", f.Severity, f.Detail, s.severity, s.detail)
			}
			if f.Acts == catalog.NoActor || len(f.Run) == 0 && f.Way == "" || f.Object.Name == "" {
				t.Errorf("%+v, want an object, an actor and a command or a way out", f)
			}
			for name, healthy := range s.healthy {
				w := newWorld()
				s.broken(w)
				healthy(w)
				if got := codesOf(Examine(w.Cluster, noon)); len(got) > 0 && !slices.Equal(got, instead[name]) {
					t.Errorf("%s: found %v, want nothing, or %v", name, got, instead[name])
				}
			}
		})
	}
}

func TestEveryCodeOfTheClusterHasASituation(t *testing.T) {
	tried := map[string]bool{}
	for _, s := range slices.Concat(situations, hawserSituations) {
		tried[s.code] = true
	}
	for _, e := range catalog.All() {
		if e.Code > "HWS920" && e.Code <= "HWS940" && !tried[e.Code] {
			t.Errorf("%s %s has no situation, want one", e.Code, e.Reason)
		}
	}
}

// What keeps a pod from its node, or its containers from starting, is not its volume.
func TestAPodThatDoesNotWaitForItsVolumesIsNoFinding(t *testing.T) {
	for name, change := range map[string]func(w *world, pod *corev1.Pod){
		"no CPU, and a claim that waits for it": func(w *world, pod *corev1.Pod) {
			w.Classes.Items[0].VolumeBindingMode = ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)
			w.unbound("new")
			pod.Spec.NodeName, pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = "", "new"
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
				Message: "0/2 nodes are available: 2 Insufficient cpu"}}
			w.event("uid-new", "PersistentVolumeClaim", "WaitForPodScheduled", "waiting for pod to be scheduled")
		},
		"no image": func(_ *world, pod *corev1.Pod) {
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", State: corev1.ContainerState{
				Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}}}
		},
		"a scheduling gate": func(_ *world, pod *corev1.Pod) {
			pod.Spec.NodeName, pod.Spec.SchedulingGates = "", []corev1.PodSchedulingGate{{Name: "queue"}}
		},
		"nothing that is known": func(*world, *corev1.Pod) {},
	} {
		w := newWorld()
		change(w, w.addWaiting("other", "node-a", "data"))
		if r := Examine(w.Cluster, noon); len(r.Findings) > 0 {
			t.Errorf("%s: found %+v, want nothing", name, r.Findings)
		}
	}
}

func TestPodsOfOneCauseAreOneFinding(t *testing.T) {
	w := newWorld()
	for _, s := range situations {
		if s.name == "pods that wait for a provisioner" {
			s.broken(w)
		}
	}
	r := Examine(w.Cluster, noon)
	if len(r.Findings) != 1 || r.Findings[0].Waiting != 40 || len(r.Findings[0].Waiters) != mostNamed ||
		r.Findings[0].Waiters[0].Kind != facts.KindPod || r.Findings[0].Claim.String() != "PersistentVolumeClaim shop/new-0" {
		t.Errorf("findings %+v, want one for which 40 pods wait, with %d of them and the claim of the first", r.Findings,
			mostNamed)
	}
}

func TestPodsThatWaitForADeadNodeAreShownWithIt(t *testing.T) {
	w := newWorld()
	notReady(w, "node-a", corev1.ConditionUnknown, time.Hour)
	deleted(w.pod, 50*time.Minute)
	pod := w.addWaiting("web-2", "node-b", "data")
	w.event(pod.UID, "Pod", "FailedAttachVolume", `Multi-Attach error for volume "pv-1"`)
	r := Examine(w.Cluster, noon)
	if got := codesOf(r); !slices.Equal(got, []string{"HWS710"}) || r.Findings[0].Waiting != 1 ||
		r.Findings[0].Object.Name != "node-a" {
		t.Errorf("found %v: %+v; want HWS710 of node-a alone, with one pod that waits", got, r.Findings)
	}
}

func TestTheWorstIsFirst(t *testing.T) {
	w := newWorld()
	full(w)
	taint(w, "node-a")
	_, pv := w.addVolume("old", "pv-3", "handle-3")
	pv.Status.Phase = corev1.VolumeFailed
	pod := w.addWaiting("web-2", "node-b", "data")
	w.event(pod.UID, "Pod", "FailedAttachVolume", `Multi-Attach error for volume "pv-1"`)
	want := []string{"HWS927", "HWS713", "HWS208", "HWS629"}
	if got := codesOf(Examine(w.Cluster, noon)); !slices.Equal(got, want) {
		t.Errorf("found %v, want %v: danger, outage, risk, notice", got, want)
	}
}

// A command that fails, or does what is done already, is no way out.
func TestCommandsOfFindingsArePossible(t *testing.T) {
	w := newWorld()
	noPod(w)
	w.Nodes.Items = w.Nodes.Items[1:]
	for _, f := range Examine(w.Cluster, noon).Findings {
		for _, command := range f.Run {
			if strings.Contains(command, "taint node") || strings.Contains(command, "get node ") {
				t.Errorf("%s of a node that does not exist: %q", f.Code, command)
			}
		}
	}
	w = newWorld()
	w.withHawser()
	noPod(w)
	w.addIntent("i", "node-a", "data", "pv-1")
	w.attachment.Annotations = map[string]string{volumesv1alpha1.HoldAnnotation: "x"}
	w.Nodes.Items = w.Nodes.Items[1:]
	for _, f := range Examine(w.Cluster, noon).Findings {
		if f.Reason == catalog.AttachmentNodeGone && (len(f.Run) == 0 || !strings.Contains(f.Run[0], "get vai") ||
			strings.Contains(strings.Join(f.Run, "\n"), "delete volumeattachment")) {
			t.Errorf("commands %q for an attachment that Hawser holds, want the intents first, and no deletion", f.Run)
		}
	}
	w = newWorld()
	full(w)
	if run := Examine(w.Cluster, noon).Findings[0].Run; len(run) != 1 || strings.Contains(run[0], "vai") {
		t.Errorf("commands %q without Hawser, want the CSINode alone, and no intents", run)
	}
	w = newWorld()
	noPod(w)
	deleted(w.attachment, time.Hour)
	w.driver.Spec.AttachRequired = ptr.To(false)
	w.attachment.Finalizers = append([]string{volumesv1alpha1.ForcedAwayFinalizer}, w.attachment.Finalizers...)
	f := Examine(w.Cluster, noon).Findings[0]
	if len(f.Run) != 2 || !strings.Contains(f.Run[1], `"remove","path":"/metadata/finalizers/1"`) {
		t.Errorf("commands %q, want one that removes the finalizer of the attacher alone, which is the second", f.Run)
	}
}

func TestOneNamespaceIsExaminedAlone(t *testing.T) {
	for namespace, want := range map[string][]string{"": {"HWS208", "HWS626"}, "shop": {"HWS208", "HWS626"}, "other": {}} {
		w := newWorld()
		w.Namespace = namespace
		w.csiNode("node-a").Spec.Drivers[0].Allocatable.Count = ptr.To[int32](0)
		deleted(w.claim, time.Hour)
		if namespace == "other" {
			w.Pods.Items, w.Claims.Items = nil, nil
		}
		got := codesOf(Examine(w.Cluster, noon))
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("namespace %q: found %v, want %v", namespace, got, want)
		}
	}
}

// Another claim with the name of its claim does not take a volume out of its namespace.
func TestAVolumeWhoseClaimWasCreatedAgainConcernsItsNamespace(t *testing.T) {
	for namespace, want := range map[string][]string{"": {"HWS926", "HWS921"}, "shop": {"HWS926", "HWS921"}, "other": {}} {
		w := newWorld()
		claimCreatedAgain(w)
		w.addAttachment("pv-1", "handle-1", "node-b")
		if w.Namespace = namespace; namespace == "other" {
			w.Pods.Items, w.Claims.Items = nil, nil
		}
		if r := Examine(w.Cluster, noon); !slices.Equal(codesOf(r), want) {
			t.Errorf("namespace %q: found %v, want %v: %+v", namespace, codesOf(r), want, r.Findings)
		}
	}
}

func TestPodsOfOtherNamespacesAreNotTakenForMissing(t *testing.T) {
	w := newWorld()
	w.Namespace = "other"
	w.Pods.Items, w.Claims.Items = nil, nil // what a user of namespace other reads
	if got := codesOf(Examine(w.Cluster, noon)); len(got) > 0 {
		t.Errorf("found %v, want nothing: whether a pod of namespace shop uses the attachment was not read", got)
	}
}

func TestWhatMayNotBeReadIsNamedWithWhatIsLeftOut(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", errors.New("no"))
	w := newWorld()
	deleted(w.claim, time.Hour)
	w.Nodes.Items, w.Nodes.Err = nil, forbidden
	r := Examine(w.Cluster, noon)
	if got := codesOf(r); !slices.Equal(got, []string{"HWS626"}) {
		t.Errorf("found %v, want what needs no Nodes, and nothing about nodes that could not be read", got)
	}
	if len(r.LeftOut) != 1 || r.LeftOut[0].Kind != facts.KindNode || !r.LeftOut[0].Forbidden ||
		!slices.Contains(r.LeftOut[0].Findings, "dead nodes") {
		t.Errorf("left out %+v, want Node, which is forbidden, with dead nodes", r.LeftOut)
	}
}

// Each kind alone may be forbidden. What was found with it must not turn into something else.
func TestNoFindingIsMadeUpWhereAKindCannotBeRead(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no"))
	for kind, forget := range map[string]func(*Cluster){
		"Pod":                   func(c *Cluster) { c.Pods = List[corev1.Pod]{Err: forbidden} },
		"PersistentVolumeClaim": func(c *Cluster) { c.Claims = List[corev1.PersistentVolumeClaim]{Err: forbidden} },
		"PersistentVolume":      func(c *Cluster) { c.Volumes = List[corev1.PersistentVolume]{Err: forbidden} },
		"Node":                  func(c *Cluster) { c.Nodes = List[corev1.Node]{Err: forbidden} },
		"CSINode":               func(c *Cluster) { c.CSINodes = List[storagev1.CSINode]{Err: forbidden} },
		"CSIDriver":             func(c *Cluster) { c.Drivers = List[storagev1.CSIDriver]{Err: forbidden} },
		"VolumeAttachment":      func(c *Cluster) { c.Attachments = List[storagev1.VolumeAttachment]{Err: forbidden} },
		"StorageClass":          func(c *Cluster) { c.Classes = List[storagev1.StorageClass]{Err: forbidden} },
		"intents": func(c *Cluster) {
			c.Intents = List[volumesv1alpha1.VolumeAttachmentIntent]{Err: forbidden}
		},
		"node states": func(c *Cluster) { c.States = List[volumesv1alpha1.NodeVolumeState]{Err: forbidden} },
	} {
		w := newWorld()
		w.withHawser()
		w.addIntent("i", "node-a", "data", "pv-1")
		forget(w.Cluster)
		if r := Examine(w.Cluster, noon); len(r.Findings) > 0 || len(r.LeftOut) != 1 {
			t.Errorf("without %s: %+v, left out %+v; want no finding, and this kind left out", kind, r.Findings, r.LeftOut)
		}
	}
}

func TestNamesOfManyObjectsAreFew(t *testing.T) {
	var pods []*corev1.Pod
	for i := range 5 {
		pods = append(pods, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint("p", i)}})
	}
	if got, want := namesOf(pods), "shop/p0, shop/p1, shop/p2, 2 more"; got != want {
		t.Errorf("names %q, want %q", got, want)
	}
}

func TestPodsThatHaveJustBegunToWaitAreCounted(t *testing.T) {
	w := newWorld()
	for _, name := range []string{"first", "second"} {
		w.addWaiting(name, "node-a", "data").CreationTimestamp = ago(time.Minute)
	}
	w.addWaiting("elsewhere", "node-a", "data").Namespace = "bank"
	w.Pods.Items[len(w.Pods.Items)-1].CreationTimestamp = ago(time.Minute)
	for namespace, want := range map[string]int{"": 3, "shop": 2} {
		w.Namespace = namespace
		if r := Examine(w.Cluster, noon); r.New != want || len(r.Findings) > 0 {
			t.Errorf("namespace %q: %d pods and intents that have just begun to wait, findings %v; want %d and none",
				namespace, r.New, codesOf(r), want)
		}
	}
}
