/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package pod

import (
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/cached"
	"github.com/hawser-io/hawser/internal/controller/resolve"
)

// world is one pod with one claim, as most cases have it, and what a case changes in it.
type world struct {
	pod    *corev1.Pod
	node   *corev1.Node
	claim  *corev1.PersistentVolumeClaim
	pv     *corev1.PersistentVolume
	facts  facts
	volume podVolume
}

func newWorld() *world {
	w := &world{
		pod: &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "uid-1"},
			Spec: corev1.PodSpec{NodeName: "n", Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"},
			}}}},
		},
		node: &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{cached.ManagedNodeAnnotation: "true"}},
		},
		claim: &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "claim-1"},
			Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: "pv"},
			Status:     corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
		},
		pv: &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "pv"},
			Spec: corev1.PersistentVolumeSpec{
				PersistentVolumeSource: corev1.PersistentVolumeSource{
					CSI: &corev1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h"},
				},
				ClaimRef: &corev1.ObjectReference{Namespace: "ns", Name: "c", UID: "claim-1"},
			},
		},
	}
	w.facts.enabled = true
	w.volume = podVolume{name: "data", attachRequired: true}
	return w
}

func (w *world) wish() *volumesv1alpha1.VolumeAttachmentIntent {
	return newIntent(w.pod, volumesv1alpha1.PodIntentName(w.pod.Name, w.pod.UID, "data"), volumesv1alpha1.VolumeSource{
		PersistentVolumeClaim: &volumesv1alpha1.PersistentVolumeClaimSource{ClaimName: "c"},
	}, 0)
}

// stands adds the intent that was made for a pod of this UID.
func (w *world) stands(uid types.UID) *volumesv1alpha1.VolumeAttachmentIntent {
	now := w.pod.UID
	w.pod.UID = uid
	intent := w.wish()
	w.pod.UID = now
	w.facts.intents = append(w.facts.intents, intent)
	return intent
}

// decide completes the facts as gather does.
func (w *world) decide() plan {
	f := w.facts
	f.pod, f.node = w.pod, w.node
	if w.pod != nil {
		w.volume.pod, w.volume.intent = w.pod, w.wish()
		w.volume.facts = resolve.Facts{Intent: w.volume.intent, Node: w.node, Claim: w.claim, Volume: w.pv}
		f.volumes = []podVolume{w.volume}
	}
	return decide(f)
}

// summary is what a plan comes to: numbers of intents to create and to remove, of orphans, and the reason of a problem.
type summary struct {
	create, remove, orphans int
	problem                 string
}

func (p plan) summary() summary {
	s := summary{create: len(p.create), remove: len(p.remove), orphans: len(p.orphans)}
	if len(p.problems) > 0 {
		s.problem = p.problems[0].reason
	}
	return s
}

func TestDecide(t *testing.T) {
	terminating := func(w *world) { w.pod.DeletionTimestamp = ptr.To(metav1.Now()) }
	outOfService := func(w *world) { w.node.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService}} }
	container := func(w *world, s corev1.ContainerState) {
		w.pod.Status.ContainerStatuses = append(w.pod.Status.ContainerStatuses, corev1.ContainerStatus{State: s})
	}
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	waiting := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}
	terminated := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
	stands := func(w *world) { w.stands("uid-1") }
	for _, c := range []struct {
		name   string
		change func(*world)
		want   summary
	}{
		{"a pod on a managed node gets an intent", func(*world) {}, summary{create: 1}},
		{"an intent that stands is left alone", stands, summary{}},
		{"a pod that is not bound gets none", func(w *world) { w.pod.Spec.NodeName = "" }, summary{}},
		{"a pod on a node that is not managed gets none", func(w *world) { w.node.Annotations = nil }, summary{}},
		{"a node that says false is not managed", func(w *world) {
			w.node.Annotations[cached.ManagedNodeAnnotation] = "false"
		}, summary{}},
		{"a node that is not managed any more keeps none", func(w *world) {
			stands(w)
			w.node.Annotations = nil
		}, summary{remove: 1}},
		{"for a node that is not there nothing is made", func(w *world) { w.node = nil }, summary{}},
		{"for a node that is not there nothing is taken back", func(w *world) { stands(w); w.node = nil }, summary{}},
		{"but a pod that has ended on it gives up", func(w *world) {
			stands(w)
			w.node = nil
			w.pod.Status.Phase = corev1.PodFailed
		}, summary{remove: 1}},

		{"a pending pod that is bound counts", func(w *world) { w.pod.Status.Phase = corev1.PodPending }, summary{create: 1}},
		{"a pod of an unknown phase counts", func(w *world) { w.pod.Status.Phase = corev1.PodUnknown }, summary{create: 1}},
		{"a pod that succeeded does not", func(w *world) {
			stands(w)
			w.pod.Status.Phase = corev1.PodSucceeded
		}, summary{remove: 1}},
		{"a pod that failed does not, whatever its containers do", func(w *world) {
			stands(w)
			w.pod.Status.Phase = corev1.PodFailed
			container(w, running)
		}, summary{remove: 1}},
		{"a pod that is being deleted counts while a container runs", func(w *world) {
			stands(w)
			terminating(w)
			container(w, terminated)
			container(w, running)
		}, summary{}},
		{"it gives up where the node is not Ready and out of service", func(w *world) {
			stands(w)
			terminating(w)
			container(w, running)
			outOfService(w)
		}, summary{remove: 1}},
		{"it does not where the node is Ready", func(w *world) {
			stands(w)
			terminating(w)
			container(w, running)
			outOfService(w)
			w.node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		}, summary{}},
		{"a pod that is not being deleted counts on any node", func(w *world) {
			stands(w)
			container(w, running)
			outOfService(w)
		}, summary{}},
		{"it still gets intents then", func(w *world) { terminating(w); container(w, running) }, summary{create: 1}},
		{"a container of which nothing is known runs", func(w *world) {
			stands(w)
			terminating(w)
			container(w, corev1.ContainerState{})
		}, summary{}},
		{"an init container that runs counts too", func(w *world) {
			stands(w)
			terminating(w)
			container(w, terminated)
			w.pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{State: running}}
		}, summary{}},
		{"so does an ephemeral one", func(w *world) {
			stands(w)
			terminating(w)
			w.pod.Status.EphemeralContainerStatuses = []corev1.ContainerStatus{{State: running}}
		}, summary{}},
		{"a pod that is being deleted and does not run gives up", func(w *world) {
			stands(w)
			terminating(w)
			container(w, terminated)
			container(w, waiting)
		}, summary{remove: 1}},
		{"so does one whose containers never began", func(w *world) { stands(w); terminating(w) }, summary{remove: 1}},
		{"a pod whose containers ended and which is not deleted counts", func(w *world) {
			stands(w)
			container(w, terminated)
		}, summary{}},

		{"the intents of a pod that is gone are orphans", func(w *world) { stands(w); w.pod = nil }, summary{orphans: 1}},
		{"a pod of the same name is another one", func(w *world) { w.stands("uid-0") }, summary{create: 1, orphans: 1}},
		{"an intent of ours that the pod does not want is taken back", func(w *world) {
			w.stands("uid-1").Name = "another"
		}, summary{create: 1, remove: 1}},
		{"so is one for another node", func(w *world) {
			w.stands("uid-1").Spec.NodeName = "m"
		}, summary{create: 1, remove: 1}},
		{"switched off everything is taken back", func(w *world) {
			stands(w)
			w.stands("uid-0")
			w.facts.enabled = false
		}, summary{remove: 2}},

		{"a claim that is not there is told", func(w *world) {
			w.claim, w.pv = nil, nil
		}, summary{problem: volumesv1alpha1.ReasonClaimNotFound}},
		{"a claim that is not bound is told", func(w *world) {
			w.claim.Status.Phase, w.pv = corev1.ClaimPending, nil
		}, summary{problem: volumesv1alpha1.ReasonClaimNotBound}},
		{"a claim without a volume is not bound", func(w *world) {
			w.claim.Spec.VolumeName, w.pv = "", nil
		}, summary{problem: volumesv1alpha1.ReasonClaimNotBound}},
		{"a volume that is not there is told", func(w *world) {
			w.pv = nil
		}, summary{problem: volumesv1alpha1.ReasonVolumeNotFound}},
		{"a volume of another claim is told", func(w *world) {
			w.pv.Spec.ClaimRef.UID = "claim-2"
		}, summary{problem: volumesv1alpha1.ReasonVolumeBoundElsewhere}},
		{"a claim that is being deleted is told", func(w *world) {
			w.claim.DeletionTimestamp = ptr.To(metav1.Now())
		}, summary{problem: volumesv1alpha1.ReasonClaimDeleting}},
		{"one that is held for pods is attached", func(w *world) {
			w.claim.DeletionTimestamp, w.claim.Finalizers = ptr.To(metav1.Now()), []string{"kubernetes.io/pvc-protection"}
		}, summary{create: 1}},
		{"what stands stays when its claim is gone", func(w *world) { stands(w); w.claim, w.pv = nil, nil }, summary{}},
		{"a volume that no driver attaches gets none", func(w *world) {
			w.pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{}}
		}, summary{}},
		{"a volume whose driver needs no attach gets none", func(w *world) { w.volume.attachRequired = false }, summary{}},
		{"and keeps none", func(w *world) { stands(w); w.volume.attachRequired = false }, summary{remove: 1}},

		{"an ephemeral claim of the pod gets one", func(w *world) {
			w.volume.ephemeral = true
			w.claim.OwnerReferences = []metav1.OwnerReference{{UID: "uid-1", Controller: ptr.To(true)}}
		}, summary{create: 1}},
		{"an ephemeral claim that nobody owns is refused", func(w *world) {
			w.volume.ephemeral = true
		}, summary{problem: reasonClaimNotOwned}},
		{"so is one of an earlier pod of the name", func(w *world) {
			w.volume.ephemeral = true
			w.claim.OwnerReferences = []metav1.OwnerReference{{UID: "uid-0", Controller: ptr.To(true)}}
		}, summary{problem: reasonClaimNotOwned}},
		{"and one that the pod owns but does not control", func(w *world) {
			w.volume.ephemeral = true
			w.claim.OwnerReferences = []metav1.OwnerReference{{UID: "uid-1"}}
		}, summary{problem: reasonClaimNotOwned}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld()
			c.change(w)
			if got := w.decide().summary(); got != c.want {
				t.Errorf("decision for pod p: %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestAnIntentsNameIsValidAndItsOwn(t *testing.T) {
	seen := map[string]string{}
	for _, name := range []string{"web-0", "a.b", strings.Repeat("a", 253),
		strings.Repeat("a", 235) + "." + strings.Repeat("a", 10), strings.Repeat("a.", 126) + "a"} {
		for _, uid := range []types.UID{"11111111-1111-1111-1111-111111111111", "21111111-1111-1111-1111-111111111111"} {
			for _, v := range []string{"data", "data-2", strings.Repeat("v", 63)} {
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid}}
				got := volumesv1alpha1.PodIntentName(pod.Name, pod.UID, v)
				if errs := validation.IsDNS1123Subdomain(got); len(errs) > 0 {
					t.Errorf("intent name %s: %v, want a valid one", got, errs)
				}
				if who := seen[got]; who != "" {
					t.Errorf("intent of pod %s, volume %s has the name of %s, want one of its own", name, v, who)
				}
				seen[got] = name + "/" + v
				if again := volumesv1alpha1.PodIntentName(pod.Name, pod.UID, v); again != got {
					t.Errorf("intent name of pod %s, volume %s: %s, then %s; want the same", name, v, got, again)
				}
			}
		}
	}
}

func TestATrimmedPodIsDecidedLikeTheWholeOne(t *testing.T) {
	transform := transformOf(&corev1.Pod{})
	now := metav1.Now()
	for _, state := range []corev1.ContainerState{{}, {Running: &corev1.ContainerStateRunning{}},
		{Waiting: &corev1.ContainerStateWaiting{}}, {Terminated: &corev1.ContainerStateTerminated{}}} {
		for _, phase := range []corev1.PodPhase{"", corev1.PodRunning, corev1.PodFailed} {
			for _, deleted := range []*metav1.Time{nil, &now} {
				w := newWorld()
				w.stands("uid-1")
				w.pod.DeletionTimestamp, w.pod.Status.Phase = deleted, phase
				w.pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{State: state}}
				whole := w.decide().summary()
				trimmed, err := transform(w.pod)
				if err != nil {
					t.Fatal(err)
				}
				w.pod = trimmed.(*corev1.Pod)
				if got := w.decide().summary(); got != whole {
					t.Errorf("decision for a trimmed pod (%+v, phase %q, deleted %t): %+v, want that for the whole pod: %+v", state,
						phase, deleted != nil, got, whole)
				}
			}
		}
	}
}

// transformOf is what the cache does to objects of this kind.
func transformOf(kind any) func(any) (any, error) {
	for object, by := range cached.Options().ByObject {
		if reflect.TypeOf(object) == reflect.TypeOf(kind) {
			return by.Transform
		}
	}
	return nil
}
