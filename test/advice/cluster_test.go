/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package advice

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/hawser-io/hawser/test/system"
)

// attach creates an attachment that no controller knows.
func (s *story) attach(driver, volume, node string, finalizers ...string) *storagev1.VolumeAttachment {
	s.t.Helper()
	va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: s.name, Finalizers: finalizers},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: driver, NodeName: node,
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume}}}
	s.create(va)
	s.other = va.Name
	s.t.Cleanup(func() { s.remove(va) })
	return va
}

// otherDriver creates a CSIDriver that nothing serves, and a PersistentVolume of it that a claim has.
func (s *story) otherDriver(name string, change func(*storagev1.CSIDriver)) *storagev1.CSIDriver {
	s.t.Helper()
	d := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: name}}
	change(d)
	s.create(d)
	s.handmade(func(pv *corev1.PersistentVolume) { pv.Spec.CSI.Driver, pv.Spec.CSI.VolumeHandle = name, s.name })
	return d
}

func attachesNothing(d *storagev1.CSIDriver) { d.Spec.AttachRequired = ptr.To(false) }

func onlyInline(d *storagev1.CSIDriver) {
	d.Spec.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral}
}

// driverAgain replaces a CSIDriver.
func (s *story) driverAgain(name string) {
	s.t.Helper()
	d := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: name}}
	s.remove(d)
	awaitGone(s, &storagev1.CSIDriverList{}, d)
	s.create(d)
}

func TestTheWholeCluster(t *testing.T) {
	play(t, map[string]situation{
		"an attachment of a node that has gone": {code: "HWS923", ends: attachmentGone,
			comes: func(s *story) question {
				pv := s.volume()
				va := s.attach(system.DriverName, pv.Name, "node-gone")
				await(s, &storagev1.VolumeAttachmentList{}, va, func(va *storagev1.VolumeAttachment) bool {
					return va.Status.AttachError != nil // which is no cause
				})
				return why("volumeattachment", va.Name)
			}},
		"an attachment of a volume that has gone": {code: "HWS924", ends: attachmentGone,
			way: "Then delete the attachment and remove the finalizer of its attacher",
			comes: func(s *story) question {
				pv := s.inUse(nodeB)
				s.t.Cleanup(func() { s.dropped(s.intent) })
				s.other = s.attachment(pv).Name
				s.loseVolume(pv)
				return why("volumeattachment", s.other)
			},
			act: func(s *story) {
				va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: s.other}}
				s.release(s.intent)
				await(s, &storagev1.VolumeAttachmentList{}, va, func(va *storagev1.VolumeAttachment) bool {
					return va.DeletionTimestamp != nil // Hawser deletes what it has made
				})
				s.patch(va, `{"metadata":{"finalizers":null}}`)
			}},
		"a finalizer of a driver that has gone": {code: "HWS925", ends: attachmentGone,
			comes: func(s *story) question {
				s.handmade(func(pv *corev1.PersistentVolume) { pv.Spec.CSI.Driver = "gone.example.com" })
				va := s.attach("gone.example.com", s.name, nodeB, "external-attacher/gone-example-com")
				s.remove(va)
				return why("volumeattachment", va.Name)
			}},
		"a taint on a node that runs": {code: "HWS927",
			comes: func(s *story) question {
				s.alone(nodeBare)
				s.must(s.sys.StopProcess(s.limited(), system.Agent(nodeBare)))
				s.t.Cleanup(func() { s.must(s.sys.StartAgain(s.limited(), system.Agent(nodeBare))) })
				s.outOfService(nodeBare)
				return examine(nodeBare)
			}},
		"a node without a limit": {code: "HWS928", way: "Let the driver's node plugin report max_volumes_per_node",
			comes: func(s *story) question {
				s.alone(nodeTainted)
				s.inUse(nodeTainted)
				return examine(nodeTainted)
			},
			act: func(s *story) { s.registers(nodeTainted, "--max-volumes=20") }},
		"attachments of a driver that attaches nothing": {code: "HWS929", way: "Otherwise delete the attachments",
			comes: func(s *story) question {
				s.otherDriver("never.example.com", attachesNothing)
				s.attach("never.example.com", s.name, nodeB)
				return examine("never.example.com")
			},
			act: func(s *story) { s.remove(&storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: s.other}}) }},
		"a driver for inline volumes only": {code: "HWS930", way: "Correct it",
			comes: func(s *story) question {
				s.otherDriver("inline.example.com", onlyInline)
				return examine(s.name)
			},
			act: func(s *story) { s.driverAgain("inline.example.com") }},
		"two PersistentVolumes of one handle": {code: "HWS931",
			way: "Before you delete one, set its reclaim policy to Retain",
			comes: func(s *story) question {
				// One finding has the volumes of a driver, as far as it names them. Others share handles, too.
				for _, name := range []string{s.name, s.name + "-again"} {
					pv := s.pv(s.name)
					pv.Name, pv.Spec.CSI.Driver = name, "shared.example.com"
					s.create(pv)
					s.bound(s.claim(name, ofVolume(name)))
				}
				return examine(s.name)
			},
			act: func(s *story) { s.remove(claimOf(s.name)); s.remove(s.pv("")) }},
		"a claim that is deleted in use": {code: "HWS626",
			comes: func(s *story) question {
				s.volume()
				s.pod(s.name, s.name, nodeA)
				s.remove(claimOf(s.name))
				return why("pvc", s.name)
			},
			way: "Delete the pods and intents that use it",
			act: func(s *story) {
				s.remove(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: s.name}})
			},
			ends: func(s *story) { awaitGone(s, &corev1.PersistentVolumeClaimList{}, claimOf(s.name)) }},
	})
}
