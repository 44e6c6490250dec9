/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/kubelet"
	"github.com/hawser-io/hawser/internal/handshake"
	"github.com/hawser-io/hawser/internal/mount"
)

// kubeletUse is the kubelet's use of one volume, from the look that saw it first to the one that does not see it any more.
type kubeletUse struct {
	// AttachmentUID of the entry that was Attached when the use was seen; empty where there was none.
	AttachmentUID types.UID `json:"attachmentUID,omitempty"`
	// Life tells this use from a later one of the same volume. Empty where an earlier process told of it in the API alone.
	Life              []string         `json:"life,omitempty"`
	Sources           []kubelet.Source `json:"sources,omitempty"`
	PersistentVolumes []string         `json:"persistentVolumes,omitempty"`
	StagedPath        string           `json:"stagedPath,omitempty"`
	DevicePath        string           `json:"devicePath,omitempty"`
	// Devices that the volume has to itself. Once the kubelet has unmounted it each is asked whether anything still holds it.
	Devices []mount.Device `json:"devices,omitempty"`
	Block   bool           `json:"block,omitempty"`
	// StageWritten tells when the record of the stage was last written, EarlierStage when it was by the end of the boot before.
	StageWritten string `json:"stageWritten,omitempty"`
	EarlierStage string `json:"earlierStage,omitempty"`
	// ProvenStage is StageWritten at the last look of which a report was taken while the entry of AttachmentUID was Attached. The
	// kubelet writes its record before each call to stage: so while it is as it was then, what is mounted is of that attachment.
	ProvenStage string `json:"provenStage,omitempty"`
	// ShutDown: its filesystem was shut down because the attachment was taken away.
	ShutDown bool `json:"shutDown,omitempty"`

	// held is why it still counts as in use though the kubelet has unmounted it: a device is not free.
	held *volumesv1alpha1.OperationError `json:"-"`
	// waiting: nothing of an attachment that is gone can be here.
	waiting   bool     `json:"-"`
	published bool     `json:"-"`
	mounts    []string `json:"-"`
	doubt     string   `json:"-"`
	// failure is why it cannot be shut down.
	failure *volumesv1alpha1.OperationError `json:"-"`
}

// kubeletUses are the uses that a look found, by the volumes' unique names, in company of those that were known before.
func kubeletUses(before map[string]kubeletUse, found map[string]*kubelet.Use, nvs *volumesv1alpha1.NodeVolumeState, boot string) map[string]kubeletUse {
	uses := make(map[string]kubeletUse, len(found))
	for name, u := range found {
		use := kubeletUse{
			Life: slices.Sorted(slices.Values(u.Life)), Sources: u.Sources, PersistentVolumes: u.PersistentVolumes,
			StagedPath: u.StagedPath, DevicePath: u.DevicePath, Block: u.Block,
			StageWritten: u.StageWritten, published: u.Published, mounts: u.Mounts, doubt: u.Doubt,
		}
		use.Devices = before[name].Devices
		if old, ok := before[name]; ok && sameLife(old.Life, use.Life) {
			use.inherit(old)
		}
		use.await(handshake.NodeOf(nvs, name), boot)
		if use.AttachmentUID == "" {
			use.AttachmentUID = attachedUID(nvs, name)
		}
		uses[name] = use
	}
	return uses
}

// await says that the kubelet only waits, where nothing that it has can be of the attachment that was forced away from an
// earlier boot. n was read before the look. A raw block volume has no record that tells: the kubelet writes its own anew each
// time that it tries.
func (u *kubeletUse) await(n handshake.Node, boot string) {
	untouched := u.StageWritten != "" && u.StageWritten == u.EarlierStage
	if !untouched || u.Block || u.doubt != "" || len(u.mounts) > 0 {
		return
	}
	if (handshake.Protocol{Kubelet: true}).MayCountAsWaiting(n, boot) == handshake.GuardNone {
		u.waiting, u.AttachmentUID, u.ShutDown, u.failure = true, "", false, nil
	}
}

// proven reports whether what the kubelet has mounted is known to be of AttachmentUID.
func (u *kubeletUse) proven() bool { return u.StageWritten != "" && u.StageWritten == u.ProvenStage }

// provable reports whether a report would prove that.
func (u *kubeletUse) provable(nvs *volumesv1alpha1.NodeVolumeState, name string) bool {
	return u.AttachmentUID != "" && u.AttachmentUID == attachedUID(nvs, name) && u.StageWritten != "" && len(u.mounts) > 0
}

// inherit takes over what stays while the use lasts.
func (u *kubeletUse) inherit(old kubeletUse) {
	u.AttachmentUID, u.ShutDown, u.failure = old.AttachmentUID, old.ShutDown, old.failure
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

// sameLife says whether something of the earlier use is still there. Where both have records those decide, because a
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

// sameUses says whether the node's lines would be the same.
func sameUses(x, y map[string]kubeletUse) bool {
	return maps.EqualFunc(x, y, func(a, b kubeletUse) bool {
		return a.AttachmentUID == b.AttachmentUID && a.waiting == b.waiting && a.StagedPath == b.StagedPath && a.DevicePath == b.DevicePath &&
			a.published == b.published && a.Block == b.Block && a.doubt == b.doubt && (a.failure == nil) == (b.failure == nil) &&
			a.mountTableOnly() == b.mountTableOnly() && reflect.DeepEqual(a.held, b.held)
	})
}

// pressing says whether somebody waits to hear of the change: a use that ended, or that speaks of another attachment.
func pressing(before, now map[string]kubeletUse) bool {
	for name, old := range before {
		if u, ok := now[name]; !ok || u.AttachmentUID != old.AttachmentUID || u.waiting && !old.waiting {
			return true
		}
	}
	return false
}

// mountTableOnly reports whether no device is known that the kernel could be asked about. A raw block volume has one.
func (u kubeletUse) mountTableOnly() bool {
	return len(u.Devices) == 0 && len(u.mounts) > 0 && !u.Block
}

func (u kubeletUse) differs() string {
	if u.doubt == "" {
		return ""
	}
	return fmt.Sprintf("counts as in use, because %s cannot be read", u.doubt)
}
