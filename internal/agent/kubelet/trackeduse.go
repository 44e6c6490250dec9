/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package kubelet

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/handshake"
	"github.com/hawser-io/hawser/internal/mount"
)

// TrackedUse is the kubelet's use of one volume, from the observation that finds it first to the one that finds it no
// more.
type TrackedUse struct {
	// AttachmentUID of the entry that was Attached when the use was seen; empty where there was none.
	AttachmentUID types.UID `json:"attachmentUID,omitempty"`
	// Life distinguishes this use from a later one of the same volume. Empty where only an earlier process' report
	// names it.
	Life              []string `json:"life,omitempty"`
	Sources           []Source `json:"sources,omitempty"`
	PersistentVolumes []string `json:"persistentVolumes,omitempty"`
	StagedPath        string   `json:"stagedPath,omitempty"`
	DevicePath        string   `json:"devicePath,omitempty"`
	// Devices that the volume has to itself. Once the kubelet has unmounted it each is asked whether anything still
	// holds it.
	Devices []mount.Device `json:"devices,omitempty"`
	Block   bool           `json:"block,omitempty"`
	// StageWritten identifies the last write of the record of the stage, EarlierStage the last one of the boot before.
	StageWritten string `json:"stageWritten,omitempty"`
	EarlierStage string `json:"earlierStage,omitempty"`
	// ProvenStage is StageWritten at the last observation whose report was accepted while the entry of AttachmentUID
	// was Attached. The kubelet writes its record before each call to stage: so while it is as it was then, what is
	// mounted is of that attachment.
	ProvenStage string `json:"provenStage,omitempty"`
	// ShutDown: its filesystem was shut down because the attachment was taken away.
	ShutDown bool `json:"shutDown,omitempty"`

	// Held is why it still counts as in use though the kubelet has unmounted it: a device is not free.
	Held *volumesv1alpha1.OperationError `json:"-"`
	// Waiting: nothing of an attachment that is gone can be here.
	Waiting   bool     `json:"-"`
	Published bool     `json:"-"`
	Mounts    []string `json:"-"`
	// Unfound are those of the mounts whose device could not be looked up yet.
	Unfound []string `json:"-"`
	Doubt   string   `json:"-"`
	// Failure is why it cannot be shut down.
	Failure *volumesv1alpha1.OperationError `json:"-"`
}

// Checks reports whether the kubelet has the device mounted. Then the end of the kubelet's use checks whether the
// device is free.
func (u *TrackedUse) Checks(d mount.Device) bool {
	return u != nil && len(u.Mounts) > 0 && slices.Contains(u.Devices, d)
}

// trackUses are the uses that an observation found, by the volumes' unique names, merged with those that were known
// before.
func trackUses(before map[string]TrackedUse, found map[string]*Use, nvs *volumesv1alpha1.NodeVolumeState,
	boot string) map[string]TrackedUse {
	uses := make(map[string]TrackedUse, len(found))
	for name, u := range found {
		use := TrackedUse{
			Life: slices.Sorted(slices.Values(u.Life)), Sources: u.Sources, PersistentVolumes: u.PersistentVolumes,
			StagedPath: u.StagedPath, DevicePath: u.DevicePath, Block: u.Block,
			StageWritten: u.StageWritten, Published: u.Published, Mounts: u.Mounts, Doubt: u.Doubt,
		}
		use.Devices = before[name].Devices
		if old, ok := before[name]; ok && sameLife(old.Life, use.Life) {
			use.inherit(old)
		}
		use.markWaiting(handshake.NodeOf(nvs, name), boot)
		if use.AttachmentUID == "" {
			use.AttachmentUID = attachedUID(nvs, name)
		}
		uses[name] = use
	}
	return uses
}

// markWaiting notes that the kubelet only waits, where nothing that it has can be of the attachment that was forced
// away from an earlier boot. n was read before the observation. A raw block volume has no record that proves this: the
// kubelet rewrites its own at each attempt.
func (u *TrackedUse) markWaiting(n handshake.Node, boot string) {
	untouched := u.StageWritten != "" && u.StageWritten == u.EarlierStage
	if !untouched || u.Block || u.Doubt != "" || len(u.Mounts) > 0 {
		return
	}
	if (handshake.Protocol{Kubelet: true}).MayCountAsWaiting(n, boot) == handshake.GuardNone {
		u.Waiting, u.AttachmentUID, u.ShutDown, u.Failure = true, "", false, nil
	}
}

// Proven reports whether what the kubelet has mounted is known to be of AttachmentUID.
func (u *TrackedUse) Proven() bool { return u.StageWritten != "" && u.StageWritten == u.ProvenStage }

// provable reports whether a report would prove that.
func (u *TrackedUse) provable(nvs *volumesv1alpha1.NodeVolumeState, name string) bool {
	return u.AttachmentUID != "" && u.AttachmentUID == attachedUID(nvs, name) && u.StageWritten != "" &&
		len(u.Mounts) > 0
}

// inherit takes over what stays while the use lasts.
func (u *TrackedUse) inherit(old TrackedUse) {
	u.AttachmentUID, u.ShutDown, u.Failure = old.AttachmentUID, old.ShutDown, old.Failure
	u.EarlierStage, u.ProvenStage = old.EarlierStage, old.ProvenStage
	for _, s := range old.Sources {
		if !slices.Contains(u.Sources, s) {
			u.Sources = append(u.Sources, s)
		}
	}
	if u.DevicePath == "" {
		u.DevicePath = old.DevicePath
	}
}

// sameLife reports whether something of the earlier use is still there. Where both have records those decide, because a
// later mount may get an earlier one's number.
func sameLife(before, now []string) bool {
	if len(before) == 0 {
		return true // not known counts as the same
	}
	records := func(life []string) []string {
		return slices.DeleteFunc(slices.Clone(life), func(s string) bool { return !strings.HasPrefix(s, "record ") })
	}
	if x, y := records(before), records(now); len(x) > 0 && len(y) > 0 {
		before, now = x, y
	}
	return slices.ContainsFunc(before, func(s string) bool { return slices.Contains(now, s) })
}

func attachedUID(nvs *volumesv1alpha1.NodeVolumeState, name string) types.UID {
	if nvs == nil {
		return ""
	}
	if e := handshake.AttachmentOf(nvs, name); e != nil && e.State == volumesv1alpha1.AttachmentAttached {
		return e.AttachmentUID
	}
	return ""
}

// sameUses reports whether the node's lines would be the same.
func sameUses(x, y map[string]TrackedUse) bool {
	return maps.EqualFunc(x, y, func(a, b TrackedUse) bool {
		return a.AttachmentUID == b.AttachmentUID && a.Waiting == b.Waiting && a.StagedPath == b.StagedPath &&
			a.DevicePath == b.DevicePath &&
			a.Published == b.Published && a.Block == b.Block && a.Doubt == b.Doubt &&
			(a.Failure == nil) == (b.Failure == nil) &&
			a.MountTableOnly() == b.MountTableOnly() && reflect.DeepEqual(a.Held, b.Held)
	})
}

// urgent reports whether another program waits for the report of the change: a use has ended, or belongs to another
// attachment.
func urgent(before, now map[string]TrackedUse) bool {
	for name, old := range before {
		if u, ok := now[name]; !ok || u.AttachmentUID != old.AttachmentUID || u.Waiting && !old.Waiting {
			return true
		}
	}
	return false
}

// MountTableOnly reports whether no device is known that the kernel could be asked about. A raw block volume has one.
func (u TrackedUse) MountTableOnly() bool {
	return len(u.Devices) == 0 && len(u.Mounts) > 0 && !u.Block
}

// Differs describes why the use is only assumed; empty where it is certain.
func (u TrackedUse) Differs() string {
	if u.Doubt == "" {
		return ""
	}
	return fmt.Sprintf("counts as in use, because %s cannot be read", u.Doubt)
}
