/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package machine

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/handshake"
)

const (
	uuidA = "4c4c4544-0043-3510-8052-b4c04f564d31"
	uuidB = "4c4c4544-0043-3510-8052-b4c04f564d32"
	idA   = "9f1c2e5b7a8d4e0f93b1c6d2a4f80e11"
	idB   = "9f1c2e5b7a8d4e0f93b1c6d2a4f80e12"
)

func TestWhichMachinesAreOne(t *testing.T) {
	for name, c := range map[string]struct {
		a, b [2]string
		want Relation
	}{
		"a reboot":                            {[2]string{uuidA, idA}, [2]string{uuidA, idA}, Same},
		"installed anew":                      {[2]string{uuidA, idA}, [2]string{uuidA, idB}, Same},
		"a clone":                             {[2]string{uuidA, idA}, [2]string{uuidB, idA}, Other},
		"a replacement":                       {[2]string{uuidA, idA}, [2]string{uuidB, idB}, Other},
		"no system UUID, the same disk":       {[2]string{"", idA}, [2]string{"", idA}, Same},
		"no system UUID, another disk":        {[2]string{"", idA}, [2]string{"", idB}, Other},
		"one has no system UUID":              {[2]string{"", idA}, [2]string{uuidB, idA}, Same},
		"one has a placeholder":               {[2]string{placeholders[0], idA}, [2]string{uuidB, idB}, Other},
		"nothing of one":                      {[2]string{"", ""}, [2]string{uuidB, idB}, Undecidable},
		"nothing of both":                     {[2]string{"", ""}, [2]string{"", ""}, Undecidable},
		"different identifiers of each":       {[2]string{uuidA, ""}, [2]string{"", idB}, Undecidable},
		"the same placeholder, nothing else":  {[2]string{placeholders[0], ""}, [2]string{placeholders[0], ""}, Undecidable},
		"written in another way":              {[2]string{uuidA, ""}, [2]string{strings.ToUpper(uuidA) + "\n", ""}, Same},
		"an earlier release has kept nothing": {[2]string{uuidA, idA}, [2]string{"", ""}, Undecidable},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := New(c.a[0], c.a[1]), New(c.b[0], c.b[1])
			if got, back := Compare(a, b), Compare(b, a); got != c.want || back != c.want {
				t.Errorf("machines %+v and %+v: relation %d, and %d the other way round, want %d", a, b, got, back, c.want)
			}
		})
	}
}

func TestPlaceholdersIdentifyNoMachine(t *testing.T) {
	for _, id := range append([]string{
		"", "Not Settable", "Not Specified", "None", "00000000-0000-0000-0000-000000000000",
		"FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF", "03000200-0400-0500-0006-000700080009",
		"03000200-0400-0500-0006-0007000800ZZ", "4c4c4544", "uninitialized",
	}, placeholders...) {
		if got := New(id, id); got != (volumesv1alpha1.MachineIdentity{}) {
			t.Errorf("identifier %q gives %+v, want none", id, got)
		}
	}
	if got := New(uuidA, idA); len(got.SystemUUID) != hashLength || got.SystemUUID == got.MachineID {
		t.Errorf("identity is %+v, want a hash of each identifier", got)
	}
}

func TestTheIdentityIsReadFromAFileWhereNodesShareAKernel(t *testing.T) {
	file := filepath.Join(t.TempDir(), "machine")
	if _, err := Read(file); err == nil {
		t.Error("reading a file that is not there succeeds, want an error: a node would take itself for another")
	}
	if err := os.WriteFile(file, []byte(uuidA+"\n"+idA+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := Read(file); err != nil || got != New(uuidA, idA) {
		t.Errorf("identity is %+v (%v), want %+v", got, err, New(uuidA, idA))
	}
	if err := os.WriteFile(file, []byte(uuidA), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := Read(file); err != nil || got != New(uuidA, "") {
		t.Errorf("identity is %+v (%v), want %+v", got, err, New(uuidA, ""))
	}
}

func TestALeaseNamesTheMachine(t *testing.T) {
	for _, m := range []volumesv1alpha1.MachineIdentity{New(uuidA, idA), New(uuidA, ""), New("", idA), {}} {
		if got := HolderOf(Holder("node-a", m)); got != m {
			t.Errorf("holder %q is read as %+v, want %+v", Holder("node-a", m), got, m)
		}
	}
	if got := HolderOf("node-a"); got != (volumesv1alpha1.MachineIdentity{}) {
		t.Errorf("the holder of an earlier release is read as %+v, want no machine", got)
	}
}

func TestWhatOtherMachinesUse(t *testing.T) {
	a, b := New(uuidA, idA), New(uuidB, idB)
	noUUID := New("", idB)
	line := func(machine *volumesv1alpha1.MachineIdentity, inUse bool) volumesv1alpha1.NodeVolume {
		return volumesv1alpha1.NodeVolume{VolumeName: "v", AttachmentUID: "u1", InUse: inUse, Machine: machine}
	}
	never := func(*volumesv1alpha1.NodeVolume) bool { return false }
	always := func(*volumesv1alpha1.NodeVolume) bool { return true }
	for name, c := range map[string]struct {
		self, wrote volumesv1alpha1.MachineIdentity
		line        volumesv1alpha1.NodeVolume
		recorded    func(*volumesv1alpha1.NodeVolume) bool
		want        int
	}{
		"its own":                              {a, a, line(nil, true), never, 0},
		"that of the machine before":           {b, a, line(nil, true), never, 1},
		"carried on before":                    {b, b, line(&a, true), never, 1},
		"its own, carried on by another":       {a, b, line(&a, true), never, 0},
		"not in use":                           {b, a, line(nil, false), never, 0},
		"a clone has the records too":          {b, a, line(nil, true), always, 1},
		"no system UUID, but the records":      {noUUID, New("", idA), line(nil, true), always, 0},
		"no system UUID, and no record":        {noUUID, New("", idA), line(nil, true), never, 1},
		"of an earlier release":                {b, volumesv1alpha1.MachineIdentity{}, line(nil, true), never, 0},
		"of a machine without any identifiers": {volumesv1alpha1.MachineIdentity{}, a, line(nil, true), never, 0},
	} {
		t.Run(name, func(t *testing.T) {
			nvs := &volumesv1alpha1.NodeVolumeState{Status: volumesv1alpha1.NodeVolumeStateStatus{
				Machine: c.wrote, BootID: "boot-1", Volumes: []volumesv1alpha1.NodeVolume{c.line}}}
			others := Others(c.self, nvs, c.recorded)
			if len(others) != c.want {
				t.Errorf("%d lines of other machines, want %d", len(others), c.want)
			}
			for _, o := range others {
				if o.Machine == nil || o.Machine.SystemUUID+o.Machine.MachineID == "" {
					t.Errorf("line of another machine names %+v, want that machine", o.Machine)
				}
			}
			if left := len(Of(c.self, nvs, c.recorded).Status.Volumes); left != 1-c.want {
				t.Errorf("%d lines are left without those of other machines, want %d", left, 1-c.want)
			}
			if len(nvs.Status.Volumes) != 1 || (nvs.Status.Volumes[0].Machine == nil) != (c.line.Machine == nil) {
				t.Errorf("the node state was changed: %+v", nvs.Status.Volumes)
			}
		})
	}
}

func TestAUseThatNamesNoAttachmentCanBeDeclared(t *testing.T) {
	a, b := New(uuidA, idA), New(uuidB, idB)
	never := func(*volumesv1alpha1.NodeVolume) bool { return false }
	nvs := &volumesv1alpha1.NodeVolumeState{
		Spec: volumesv1alpha1.NodeVolumeStateSpec{
			Attachments: []volumesv1alpha1.NodeAttachment{{VolumeName: "ours", AttachmentUID: "u1"}}},
		Status: volumesv1alpha1.NodeVolumeStateStatus{Machine: a, Volumes: []volumesv1alpha1.NodeVolume{
			{VolumeName: "ours", InUse: true, PublishedBy: volumesv1alpha1.PublisherKubelet},
			{VolumeName: "upstreams", InUse: true, PublishedBy: volumesv1alpha1.PublisherKubelet},
		}},
	}
	if left := Of(b, nvs, never).Status.Volumes; len(left) != 0 {
		t.Errorf("lines without those of other machines: %+v, want none", left)
	}
	nvs.Status.Volumes, nvs.Status.Machine = Others(b, nvs, never), b
	if got := nvs.Status.Volumes[0].AttachmentUID; got != "" {
		t.Errorf("a use of the entry's attachment names %q, want nothing: it ends with the entry", got)
	}
	unnamed := nvs.Status.Volumes[1].AttachmentUID
	drop := func() handshake.Guard { return handshake.Protocol{}.MayDropForeign(handshake.NodeOf(nvs, "upstreams")) }
	if drop() == handshake.GuardNone {
		t.Errorf("the use %q of another machine may be dropped, want that an administrator ends it", unnamed)
	}
	nvs.Annotations = map[string]string{volumesv1alpha1.DeclaredReleasedPrefix + string(unnamed): "scrapped"}
	if got := drop(); unnamed != Unnamed(a) || got != handshake.GuardNone {
		t.Errorf("the use %q that is declared ended is kept: guard %s", unnamed, got)
	}
}

func TestAUseBeforeTheLastBootIsOfAnUnknownMachineIfNothingIdentifiesIt(t *testing.T) {
	identified := New(uuidA, idA)
	identified.BootID = "earlier"
	for name, c := range map[string]struct {
		boot, recorded string
		line           volumesv1alpha1.NodeVolume
		want           []string
	}{
		"of an earlier boot":         {"earlier", "", volumesv1alpha1.NodeVolume{InUse: true}, []string{"v"}},
		"of this boot":               {"now", "", volumesv1alpha1.NodeVolume{InUse: true}, nil},
		"with a record":              {"earlier", "v", volumesv1alpha1.NodeVolume{InUse: true}, nil},
		"not in use":                 {"earlier", "", volumesv1alpha1.NodeVolume{}, nil},
		"of a machine that is named": {"now", "", volumesv1alpha1.NodeVolume{InUse: true, Machine: &identified}, nil},
	} {
		nvs := &volumesv1alpha1.NodeVolumeState{}
		nvs.Status.BootID = c.boot
		c.line.VolumeName = "v"
		nvs.Status.Volumes = []volumesv1alpha1.NodeVolume{c.line}
		got := Unknown("now", nvs, func(line *volumesv1alpha1.NodeVolume) bool { return line.VolumeName == c.recorded })
		if !slices.Equal(got, c.want) {
			t.Errorf("a use %s: volumes of an unknown machine %v, want %v", name, got, c.want)
		}
	}
}
