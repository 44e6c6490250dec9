/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package advice

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/test/csiloop/faults"
	"github.com/hawser-io/hawser/test/system"
)

func singleUser(c *corev1.PersistentVolumeClaim) {
	c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
}

func onlyAttached(i *intent) { i.Spec.DesiredState = volumesv1alpha1.DesiredAttached }

// attachment is that of a volume; it waits until there is one.
func (s *story) attachment(pv *corev1.PersistentVolume) *storagev1.VolumeAttachment {
	s.t.Helper()
	list := &storagev1.VolumeAttachmentList{}
	s.must(s.sys.Client.List(s.limited(), list))
	for i := range list.Items {
		if name := list.Items[i].Spec.Source.PersistentVolumeName; name != nil && *name == pv.Name {
			return &list.Items[i]
		}
	}
	s.t.Fatalf("PersistentVolume %s has no attachment", pv.Name)
	return nil
}

func attachmentGone(s *story) {
	s.t.Helper()
	s.must(s.sys.AwaitAttachmentGone(s.limited(), s.other))
}

// attachedTo waits until an attacher has attached.
func attachedTo(s *story, va *storagev1.VolumeAttachment) {
	s.t.Helper()
	await(s, &storagev1.VolumeAttachmentList{}, va, func(va *storagev1.VolumeAttachment) bool {
		return va != nil && va.Status.Attached
	})
}

// attachedFor waits until the attach/detach controller has a volume attached to a node that reports it.
func (s *story) attachedFor(pv *corev1.PersistentVolume) *storagev1.VolumeAttachment {
	s.t.Helper()
	name := corev1.UniqueVolumeName(volume.UniqueNameOf(pv))
	await(s, &corev1.NodeList{}, s.node(nodeB), func(n *corev1.Node) bool {
		return slices.ContainsFunc(n.Status.VolumesAttached, func(v corev1.AttachedVolume) bool { return v.Name == name })
	})
	return s.attachment(pv)
}

// keeps reports the volumes that a node has in use, as its kubelet does.
func (s *story) keeps(node string, volumes ...*corev1.PersistentVolume) {
	s.t.Helper()
	n := s.node(node)
	s.must(s.sys.Client.Get(s.limited(), client.ObjectKeyFromObject(n), n))
	before := n.DeepCopy()
	n.Status.VolumesInUse = nil
	for _, pv := range volumes {
		n.Status.VolumesInUse = append(n.Status.VolumesInUse, corev1.UniqueVolumeName(volume.UniqueNameOf(pv)))
	}
	s.must(s.sys.Client.Status().Patch(s.limited(), n, client.StrategicMergeFrom(before)))
}

func (s *story) node(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// outOfService sets the taint.
func (s *story) outOfService(node string) {
	s.t.Helper()
	s.bash("kubectl taint node " + node + " node.kubernetes.io/out-of-service=down:NoExecute")
	s.t.Cleanup(func() { s.patch(s.node(node), `{"spec":{"taints":null}}`) })
}

// asks changes the size that the story's claim asks for.
func (s *story) asks(size string) {
	s.t.Helper()
	s.patch(claimOf(s.name), `{"spec":{"resources":{"requests":{"storage":"`+size+`"}}}}`)
}

// cannotGrow has a volume in use grow while the driver refuses a call for that.
func (s *story) cannotGrow(method string, answer codes.Code, message string) question {
	s.t.Helper()
	pv := s.volume(asBlock)
	q := s.wants(nodeA)
	s.ready()
	s.fails(faults.Fault{Method: method, Volume: pv.Spec.CSI.VolumeHandle, Code: answer, Message: message})
	s.asks("64Mi")
	return q
}

func TestAttachments(t *testing.T) {
	play(t, map[string]situation{
		"a detach that fails": {code: "HWS204", way: "error names the cause",
			comes: func(s *story) question {
				pv := s.volume()
				s.wants(nodeA)
				s.ready()
				s.fails(faults.Fault{Method: "ControllerUnpublishVolume", Volume: pv.Spec.CSI.VolumeHandle,
					Code: codes.Internal, Message: "the storage keeps it"})
				s.other = s.attachment(pv).Name
				s.dropped(s.intent)
				return why("volumeattachment", s.other)
			}, act: repaired, ends: attachmentGone},
		"a detach that its node waits for": {code: "HWS416", way: "Bring the attacher back",
			comes: func(s *story) question {
				pv := s.volume()
				s.wants(nodeB)
				s.ready()
				s.fails(faults.Fault{Method: "ControllerUnpublishVolume", Volume: pv.Spec.CSI.VolumeHandle,
					Code: codes.Internal, Message: "the storage keeps it"})
				s.other = s.attachment(pv).Name
				s.dropped(s.intent)
				return why("node", nodeB)
			}, act: repaired, ends: attachmentGone},
		"an attachment that nothing uses": {code: "HWS921", ends: attachmentGone,
			comes: func(s *story) question {
				va := s.attach(system.DriverName, s.volume().Name, nodeB)
				attachedTo(s, va)
				return why("volumeattachment", s.other)
			}},
		"a volume that a kubelet keeps": {code: "HWS922", way: "detached once it is unmounted", ends: attachmentGone,
			comes: func(s *story) question {
				pv := s.volume()
				pod := s.pod(s.name, s.name, nodeB)
				va := s.attachedFor(pv)
				s.other = va.Name
				s.keeps(nodeB, pv)
				s.remove(pod)
				return why("volumeattachment", s.other)
			},
			act: func(s *story) { s.keeps(nodeB) }},
		"a volume that a kubelet uses beside an intent": {code: "HWS328", way: "Let the pod on that node end",
			ends: (*story).isGone,
			comes: func(s *story) question {
				pv := s.inUse(nodeA)
				s.pod(s.name, s.name, nodeA)
				s.keeps(nodeA, pv)
				s.dropped(s.intent)
				return why("intent", s.intent)
			},
			act: func(s *story) { s.remove(podOf(namespace, s.name, s.name, nodeA)); s.keeps(nodeA) }},
		"a volume that another node has": {code: "HWS206", way: "Delete the intent",
			comes: func(s *story) question {
				s.volume()
				s.wantsAs(s.name+"-first", s.name, nodeA)
				s.ready()
				return s.wants(nodeB)
			},
			act: func(s *story) { s.dropped(s.name + "-first") }, ends: (*story).ready},
		"a claim for one user that has another": {code: "HWS207", way: "Delete the other user",
			comes: func(s *story) question {
				s.volume(singleUser)
				s.wantsAs(s.name+"-first", s.name, nodeA)
				s.ready()
				return s.wants(nodeA)
			},
			act: func(s *story) { s.dropped(s.name + "-first") }, ends: (*story).ready},
		"a node that is full": {code: "HWS208", way: "Move other volumes away",
			comes: func(s *story) question {
				s.volume()
				s.bound(s.claim(s.name + "-first"))
				s.wantsAs(s.name+"-first", s.name+"-first", nodeFull)
				s.ready()
				return s.wants(nodeFull)
			},
			act: func(s *story) { s.dropped(s.name + "-first") }, ends: (*story).ready},
		"a volume with too many uses": {code: "HWS216", way: "Delete intents of the volume",
			comes: func(s *story) question {
				s.volume()
				for i := range 256 {
					s.create(intentOf(fmt.Sprintf("%s-%d", s.name, i), s.name, nodeB, onlyAttached))
				}
				s.t.Cleanup(func() {
					for i := range 256 {
						s.dropped(fmt.Sprintf("%s-%d", s.name, i))
					}
				})
				for i := range 256 {
					s.pathOf(fmt.Sprintf("%s-%d", s.name, i))
				}
				return s.wants(nodeB, onlyAttached)
			},
			act: func(s *story) { s.dropped(s.name + "-7") }, ends: (*story).ready},
		"an attachment of another volume": {code: "HWS716", way: "delete the pods and intents that use that volume",
			comes: func(s *story) question {
				first := s.volume()
				s.wantsAs(s.name+"-first", s.name, nodeA)
				s.ready()
				second := s.pv(first.Spec.CSI.VolumeHandle)
				s.create(second)
				s.bound(s.claim(s.name+"-second", ofVolume(second.Name)))
				return s.wantsAs(s.name+"-second", s.name+"-second", nodeA)
			},
			act: func(s *story) { s.dropped(s.name + "-first") }, ends: (*story).ready},
		"a finalizer of another program": {code: "HWS718", way: "leads to the program that removes it",
			comes: func(s *story) question {
				pv := s.volume()
				s.wants(nodeA)
				s.ready()
				va := s.attachment(pv)
				s.other = va.Name
				s.patch(va, `{"metadata":{"finalizers":["example.com/audit","`+strings.Join(va.Finalizers, `","`)+`"]}}`)
				s.dropped(s.intent)
				return why("volumeattachment", s.other)
			},
			act: func(s *story) {
				va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: s.other}}
				s.patch(va, `{"metadata":{"finalizers":null}}`)
			}, ends: attachmentGone},
		"an intent on a node that is out of service": {code: "HWS219",
			comes: func(s *story) question {
				s.alone(nodeTainted)
				s.volume()
				s.outOfService(nodeTainted)
				return s.wants(nodeTainted)
			}, ends: (*story).ready},
		"a volume that cannot be expanded on the node": {code: "HWS308", way: "error names the cause",
			comes: func(s *story) question {
				return s.cannotGrow("NodeExpandVolume", codes.Internal, "the device keeps its size")
			}, act: repaired},
		"a volume that the storage cannot expand": {code: "HWS932", way: "repair what it names",
			comes: func(s *story) question {
				s.cannotGrow("ControllerExpandVolume", codes.ResourceExhausted, "the pool is full")
				return why("pvc", s.name)
			}, act: repaired},
		"a size that the driver refuses": {code: "HWS627", way: "Ask for another size",
			comes: func(s *story) question {
				s.cannotGrow("ControllerExpandVolume", codes.OutOfRange, "this volume has at most 48 MiB")
				return why("pvc", s.name)
			},
			act: func(s *story) { s.end(); s.asks("40Mi") }},
		"a size that the node refuses": {code: "HWS311", way: "Ask for another size",
			comes: func(s *story) question {
				return s.cannotGrow("NodeExpandVolume", codes.OutOfRange, "this device has at most 48 MiB")
			},
			act: func(s *story) { s.end(); s.asks("80Mi") }},
		"a taint on a node that reports": {code: "HWS427",
			comes: func(s *story) question {
				s.alone(nodeTainted)
				s.volume()
				s.wants(nodeTainted)
				s.ready()
				s.outOfService(nodeTainted)
				return why("node", nodeTainted)
			}},
	})
}
