/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package simulation

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/liveness"
	"github.com/hawser-io/hawser/internal/handshake"
)

// The invariants have the numbers that they have in package handshake.

func (w *World) breaks(format string, args ...any) {
	if w.broken == "" {
		w.broken = fmt.Sprintf(format, args...)
		w.logLocked("BROKEN: %s", w.broken)
	}
}

func (w *World) state(node string) *volumesv1alpha1.NodeVolumeState {
	o, ok := w.api.kind(&volumesv1alpha1.NodeVolumeState{}).objects[client.ObjectKey{Name: node}]
	if !ok {
		return &volumesv1alpha1.NodeVolumeState{}
	}
	return o.(*volumesv1alpha1.NodeVolumeState)
}

func uniqueName(handle string) string { return "kubernetes.io/csi/" + driverName + "^" + handle }

// check every invariant of what is mounted.
func (w *World) check() {
	w.chance.reach(checked)
	usable := map[string]*machine{}
	for _, m := range w.all() {
		name, state := m.name, w.state(m.name)
		for _, e := range m.inUse() {
			reaches := m.devices[e.handle].uid == e.uid
			if d := m.devices[e.handle]; !reaches && !w.forced[e.uid] {
				w.breaks("I1 staged only while attached: on %s %s, and open is %q", name, e.describe(), d.uid)
			}
			entry := handshake.AttachmentOf(state, uniqueName(e.handle))
			if entry != nil && entry.State == volumesv1alpha1.AttachmentAttached && entry.AttachmentUID != e.uid {
				w.breaks("I8 a later life is not harmed: on %s %s, and the entry of %s is Attached",
					name, e.describe(), entry.AttachmentUID)
			}
			if !reaches {
				continue // the driver has cut it off
			}
			if other := usable[e.handle]; other != nil && other != m && e.handle != "vol-rwx" {
				w.breaks("I3 exclusive on one node: %s is mounted on %s and %s", e.handle, other.name, name)
			}
			usable[e.handle] = m
		}
		w.checkPublications(m)
		w.checkInline(m)
	}
}

// checkPublications: what is published has its intent, and a volume for a single user has one at most.
func (w *World) checkPublications(m *machine) {
	users := map[string]string{}
	for _, e := range m.mounts {
		byAgent := strings.HasPrefix(e.Path, filepath.Join(m.root(), "published"))
		if !byAgent && !strings.HasPrefix(e.Path, m.podsDir()) || e.handle == "" || w.forced[e.uid] || m.isInline(e.Path) {
			continue
		}
		if byAgent && w.intent(filepath.Base(e.Path)) == nil {
			w.breaks("I6 no publication without its intent: on %s %s", m.name, e.describe())
		}
		if other := users[e.handle]; other != "" && e.handle == "vol-pod" {
			w.breaks("single user: %s is published at %s and %s", e.handle, other, short(e.Path))
		}
		users[e.handle] = short(e.Path)
	}
}

func (w *World) intent(name string) *volumesv1alpha1.VolumeAttachmentIntent {
	intents := w.api.kind(&volumesv1alpha1.VolumeAttachmentIntent{}).objects
	o, ok := intents[client.ObjectKey{Namespace: "default", Name: name}]
	if !ok {
		return nil
	}
	return o.(*volumesv1alpha1.VolumeAttachmentIntent)
}

// unpublish is the driver's: the machine loses the device.
func (w *World) unpublish(m *machine, handle string, uid types.UID) {
	d, there := m.devices[handle]
	if !there || d.uid != uid {
		return
	}
	for _, e := range m.of(handle) {
		if w.forced[e.uid] {
			continue
		}
		w.breaks("I2 no unpublish while in use: on %s %s", m.name, e.describe())
	}
	if c := m.busy[handle]; c != nil && c.mounts && !w.forced[uid] {
		w.breaks("I2 no unpublish while in use: on %s the driver is about to mount %s", m.name, handle)
	}
	w.logLocked("the attacher closes %s for %s (%s)", handle, m.name, uid)
	w.chance.reach(detached)
	delete(m.devices, handle)
	w.check()
}

// shutDown: only what is of an attachment that was taken away may be shut down.
func (w *World) shutDown(m *machine, e mounted) {
	w.chance.reach(shut)
	if !w.forced[e.uid] {
		w.breaks("I8 a later life is not harmed: on %s %s was shut down", m.name, e.describe())
	}
}

// wrote is called after each change of the API.
func (w *World) wrote(before, after client.Object) {
	o := after
	if o == nil {
		o = before
	}
	switch o := o.(type) {
	case *volumesv1alpha1.VolumeAttachmentIntent:
		w.logLocked("%s: %s", w.by, describeIntent(o, after == nil))
		if after != nil {
			w.checkReady(before, o)
		}
	case *coordinationv1.Lease:
		w.noteRenewal(o)
		return
	case *volumesv1alpha1.NodeVolumeState:
		w.noteSession(before, o)
		w.noteRecords(before, o)
		w.noteForced(o)
		w.checkTakenIntoUse(before, o)
		if line := describeState(before, o); line != "" {
			w.logLocked("%s: %s", w.by, line)
		}
	case *storagev1.VolumeAttachment:
		w.logLocked("%s: %s", w.by, describeAttachment(o, after == nil))
	case *corev1.Node:
		if line := describeNode(before, o); line != "" {
			w.logLocked("%s: %s", w.by, line)
		}
		w.checkUnlisted(before, o)
		w.noteManagersTaint(before, o)
	case *corev1.Pod:
		w.logLocked("%s: %s", w.by, describePod(o, after == nil))
	case *unstructured.Unstructured:
		w.logLocked("%s: the power of %s is %s (gone: %t)", w.by, o.GetName(), o.Object["power"], after == nil)
		return
	default:
		return
	}
	w.check()
}

// checkUnlisted: a volume that the kubelet reports in use leaves the Node's list of attached volumes only on evidence.
func (w *World) checkUnlisted(before client.Object, node *corev1.Node) {
	old, ok := before.(*corev1.Node)
	if !ok {
		return
	}
	for _, v := range old.Status.VolumesAttached {
		e := handshake.AttachmentOf(w.state(node.Name), string(v.Name))
		inUse := slices.Contains(old.Status.VolumesInUse, v.Name)
		forced := e != nil && w.forced[e.AttachmentUID]
		if inUse && !forced && !slices.Contains(node.Status.VolumesAttached, v) {
			w.breaks("unlisted while the kubelet uses it: on %s %s", node.Name, v.Name)
		}
	}
}

// noteForced remembers what was taken away without the agent's word.
func (w *World) noteForced(s *volumesv1alpha1.NodeVolumeState) {
	for _, e := range s.Spec.Attachments {
		if e.Evidence != nil && e.Evidence.Type != volumesv1alpha1.EvidenceAgentReleased && !w.forced[e.AttachmentUID] {
			w.forced[e.AttachmentUID] = true
			w.chance.reach(taken)
			w.logLocked("%s is taken away from %s: %s", e.AttachmentUID, s.Name, e.Evidence.Type)
			w.checkOverruled(s, &e)
		}
	}
}

// checkOverruled: what is asserted of the whole node does not overrule an agent that is heard, and a taint that it has
// contradicted counts no more.
func (w *World) checkOverruled(s *volumesv1alpha1.NodeVolumeState, e *volumesv1alpha1.NodeAttachment) {
	m := w.nodes[s.Name]
	switch e.Evidence.Type {
	case volumesv1alpha1.EvidenceDeclaredByAdministrator, volumesv1alpha1.EvidenceAttachmentLost:
		return
	}
	inUse := handshake.NodeOf(s, e.VolumeName).Use.InUse
	if alive := m.agent != nil && !m.agent.isDead(); inUse && alive && time.Since(m.heard) < liveness.DefaultDuration {
		w.breaks("I9 a live agent is not overruled: %s is taken away from %s on %s, whose agent was heard %s ago",
			e.AttachmentUID, s.Name, e.Evidence.Type, time.Since(m.heard))
	}
	if m.void[e.Evidence.Type] {
		w.breaks("I9 a live agent is not overruled: %s is taken away from %s on %s, which its agent has contradicted",
			e.AttachmentUID, s.Name, e.Evidence.Type)
	}
	switch record := s.Status.Node.OutOfService; e.Evidence.Type {
	case volumesv1alpha1.EvidenceFenced:
		w.checkFenced(s, e)
	case volumesv1alpha1.EvidenceOutOfServiceTaint:
		if record == nil || record.Value == volumesv1alpha1.OutOfServiceTaintValue {
			w.breaks("the manager's taint is no evidence: %s is taken away from %s on %v", e.AttachmentUID, s.Name, record)
		}
	}
}

// speaks reports whether this is a write of the agent that lives on the machine. One before it does not count, nor does
// a write that arrives after its sender has given up: its session has ended with that.
func (w *World) speaks(m *machine) bool {
	return m != nil && m.agent != nil && w.writer == m.agent && !m.agent.isDead() && !w.late
}

// noteRenewal by the agent that lives on a machine.
func (w *World) noteRenewal(lease *coordinationv1.Lease) {
	m := w.nodes[strings.TrimPrefix(lease.Name, volumesv1alpha1.AgentLeasePrefix)]
	if !w.speaks(m) {
		return
	}
	m.heard = time.Now()
	for what, record := range recorded(w.state(m.name)) {
		m.void[what] = m.void[what] || record != ""
	}
}

// noteSession that an agent begins: it reports before it renews its Lease.
func (w *World) noteSession(before client.Object, s *volumesv1alpha1.NodeVolumeState) {
	m := w.nodes[s.Name]
	old, ok := before.(*volumesv1alpha1.NodeVolumeState)
	if ok && w.speaks(m) && old.Status.Protocol.Session != s.Status.Protocol.Session {
		m.heard = time.Now()
	}
}

// recorded is what the manager has recorded that is asserted of the node's machine; empty for what is not.
func recorded(s *volumesv1alpha1.NodeVolumeState) map[volumesv1alpha1.EvidenceType]string {
	records := map[volumesv1alpha1.EvidenceType]string{
		volumesv1alpha1.EvidenceOutOfServiceTaint: "", volumesv1alpha1.EvidenceFenced: "",
	}
	if s.Status.Node.OutOfService != nil {
		records[volumesv1alpha1.EvidenceOutOfServiceTaint] = "a taint"
	}
	for _, r := range s.Status.Node.Fences {
		records[volumesv1alpha1.EvidenceFenced] = string(r.UID)
	}
	return records
}

// refuted reports which of these records the manager has marked as contradicted.
func refuted(s *volumesv1alpha1.NodeVolumeState) map[fault]bool {
	taint, fences := s.Status.Node.OutOfService, s.Status.Node.Fences
	return map[fault]bool{
		contradicted:      taint != nil && taint.Contradicted != nil,
		fenceContradicted: len(fences) > 0 && fences[0].Contradicted != nil,
	}
}

// noteRecords: what the manager has recorded of the Node's taint and of its fence.
func (w *World) noteRecords(before client.Object, s *volumesv1alpha1.NodeVolumeState) {
	old, ok := before.(*volumesv1alpha1.NodeVolumeState)
	if !ok {
		old = &volumesv1alpha1.NodeVolumeState{}
	}
	was := recorded(old)
	for what, record := range recorded(s) {
		if m := w.nodes[s.Name]; m != nil && record != was[what] {
			m.void[what] = false
		}
	}
	for _, what := range []fault{contradicted, fenceContradicted} {
		if refuted(s)[what] && !refuted(old)[what] {
			w.chance.reach(what)
			w.logLocked("%s: that of %s", what, s.Name)
		}
	}
}

// checkTakenIntoUse: an agent takes a volume into use only while its entry is Attached, also one that used it before.
func (w *World) checkTakenIntoUse(before client.Object, s *volumesv1alpha1.NodeVolumeState) {
	old, ok := before.(*volumesv1alpha1.NodeVolumeState)
	if !ok {
		return
	}
	for _, line := range s.Status.Volumes {
		if !line.InUse || line.Machine != nil || line.PublishedBy != volumesv1alpha1.PublisherAgent {
			continue
		}
		was, entry := handshake.VolumeOf(old, line.VolumeName), handshake.AttachmentOf(old, line.VolumeName)
		attached := entry != nil && entry.State == volumesv1alpha1.AttachmentAttached &&
			entry.AttachmentUID == line.AttachmentUID
		if (was == nil || !was.InUse) && !attached {
			w.breaks("in use again: on %s %s through %s", s.Name, line.VolumeName, line.AttachmentUID)
		}
	}
}

// checkReported: what the agent calls the driver for is reported as in use, under the attachment of its entry.
func (w *World) checkReported(m *machine, operation, handle string) {
	state, name := w.state(m.name), uniqueName(handle)
	line, entry := handshake.VolumeOf(state, name), handshake.AttachmentOf(state, name)
	if line == nil || !line.InUse || entry != nil && entry.AttachmentUID != line.AttachmentUID {
		w.breaks("a call for what is not reported as in use: %s of %s on %s", operation, handle, m.name)
	}
}

// checkReady: whoever is told that the volume is published finds it there.
func (w *World) checkReady(before client.Object, i *volumesv1alpha1.VolumeAttachmentIntent) {
	published := func(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
		return meta.IsStatusConditionTrue(i.Status.Conditions, volumesv1alpha1.ConditionPublished)
	}
	if old, ok := before.(*volumesv1alpha1.VolumeAttachmentIntent); !published(i) || ok && published(old) {
		return
	}
	m := w.nodes[i.Spec.NodeName]
	if w.writer != m.agent || m.agent.isDead() {
		return // what a dead agent wrote may arrive after a reboot
	}
	if wrong := w.notPublished(i, i.Status.Path); wrong != "" {
		w.breaks("published is the volume: at %s of %s is %s", short(i.Status.Path), m.name, wrong)
	}
}

// notPublished is what is at the path in place of what the intent asks for; empty where that is there.
func (w *World) notPublished(i *volumesv1alpha1.VolumeAttachmentIntent, path string) string {
	handle := handleOf(i.Spec.Volume.PersistentVolumeClaim.ClaimName)
	e, ok := w.nodes[i.Spec.NodeName].at(path)
	mount := ptr.Deref(i.Spec.Mount, volumesv1alpha1.MountSpec{})
	switch {
	case !ok:
		return "nothing"
	case e.handle != handle:
		return e.describe()
	case filepath.Base(e.Root) != cmp.Or(mount.SubPath, filepath.Base(e.Root)):
		return fmt.Sprintf("%s of %s", e.Root, e.describe())
	case mount.FSGroup != nil && w.groups[handle] != *mount.FSGroup:
		return fmt.Sprintf("%s, with files of group %d", e.describe(), w.groups[handle])
	}
	return ""
}

// onDisk is what agents leave on a machine's disk while they have volumes.
var onDisk = []string{
	"root/volumes/*.json", "root/published/default/*", "root/publish/*", "root/staged/*", "root/sources/*",
	"kubelet/plugins/kubernetes.io/csi/" + driverName + "/*", "kubelet/plugins/kubernetes.io/csi/volumeDevices/raw*",
	"kubelet/plugins/kubernetes.io/csi/volumeDevices/staging/*", "kubelet/pods/*",
}

// leftovers are what should not be there once nobody wants anything.
func (w *World) leftovers() []string {
	var left []string
	for _, name := range slices.Sorted(keys(w.nodes)) {
		m, state := w.nodes[name], w.state(name)
		for _, e := range m.mounts {
			if e.Path != "/" {
				left = append(left, fmt.Sprintf("on %s %s", name, e.describe()))
			}
		}
		for handle, uid := range m.raw {
			left = append(left, fmt.Sprintf("on %s the stage of %s (%s)", name, handle, uid))
		}
		for handle, d := range m.devices {
			left = append(left, fmt.Sprintf("on %s the device of %s (%s)", name, handle, d.uid))
		}
		for _, e := range state.Spec.Attachments {
			left = append(left, fmt.Sprintf("the entry of %s on %s (%s, %s)", e.VolumeName, name, e.State, e.AttachmentUID))
		}
		for _, v := range state.Status.Volumes {
			left = append(left, fmt.Sprintf("the line of %s on %s (%s)", v.VolumeName, name, v.AttachmentUID))
		}
		if node := w.nodeLocked(name); len(node.Status.VolumesAttached)+len(node.Status.VolumesInUse) > 0 {
			left = append(left, fmt.Sprintf("what Node %s lists:%s", name, nodeLine(node)))
		}
		left = append(left, w.assertionsLeft(name)...)
		for _, pattern := range onDisk {
			found, err := filepath.Glob(filepath.Join(m.dir, pattern))
			w.must(err)
			for _, f := range found {
				left = append(left, fmt.Sprintf("on %s the file %s", name, strings.TrimPrefix(f, m.dir)))
			}
		}
	}
	for _, o := range w.api.list(&storagev1.VolumeAttachment{}) {
		left = append(left, describeAttachment(o.(*storagev1.VolumeAttachment), false))
	}
	for _, pod := range w.pods() {
		left = append(left, describePod(pod, false))
	}
	for _, o := range w.api.list(&volumesv1alpha1.VolumeAttachmentIntent{}) {
		left = append(left, describeIntent(o.(*volumesv1alpha1.VolumeAttachmentIntent), false))
	}
	return left
}

// missing is what is wanted and not there.
func (w *World) missing() []string {
	missing := w.missingPods()
	for _, i := range w.intents() {
		path := filepath.Join(w.nodes[i.Spec.NodeName].root(), "published", i.Namespace, i.Name)
		ready := meta.IsStatusConditionTrue(i.Status.Conditions, volumesv1alpha1.ConditionReady)
		if !ready || i.Spec.DesiredState == volumesv1alpha1.DesiredPublished && w.notPublished(i, path) != "" {
			missing = append(missing, describeIntent(i, false))
		}
	}
	return missing
}
