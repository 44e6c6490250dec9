/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package report

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// stored is what etcd takes in one request by default. A part of it is for the key and for managedFields.
const stored = 3 << 19

const someUID types.UID = "0123abcd-4567-89ab-cdef-0123456789ab"

// publications with the longest names that namespaces and intents may have.
var publications = sync.OnceValue(func() (all []volumesv1alpha1.Publication) {
	namespace := strings.Repeat("n", 63)
	for k := range mostPublications {
		name := fmt.Sprintf("%s-%04d", strings.Repeat("i", 248), k)
		all = append(all, volumesv1alpha1.Publication{
			Intent: volumesv1alpha1.IntentReference{Namespace: namespace, Name: name, UID: someUID},
			Path:   "/var/lib/hawser/published/" + namespace + "/" + name, Type: volumesv1alpha1.PublicationMount,
		})
	}
	return all
})

// mostPublications of a volume, as an earlier version allowed.
const mostPublications = 3000

// loud is a line with everything that a volume can have.
func loud(name string, published int) volumesv1alpha1.NodeVolume {
	return volumesv1alpha1.NodeVolume{
		VolumeName: name, AttachmentUID: someUID, InUse: true, MountTableOnly: true, Unprotected: true,
		StagedPath: "/var/lib/kubelet/plugins/kubernetes.io/csi/driver/" + strings.Repeat("f", 64) + "/globalmount",
		DevicePath: "/dev/disk/by-id/" + strings.Repeat("d", 64), PublishedBy: volumesv1alpha1.PublisherAgent,
		Capacity: ptr.To(resource.MustParse("123456789Ki")), Used: ptr.To(resource.MustParse("123456789Ki")),
		Available: ptr.To(resource.MustParse("123456789Ki")), Inodes: ptr.To(int64(1 << 40)),
		InodesUsed:   ptr.To(int64(1 << 40)),
		Publications: publications()[:published], Health: worstHealth(),
		Error: &volumesv1alpha1.OperationError{Operation: "unpublish", Code: "DeadlineExceeded", Attempts: 12345,
			Message: strings.Repeat("m", volumesv1alpha1.MaxMessageLength)},
	}
}

// worstHealth is the largest that an agent notes.
func worstHealth() *volumesv1alpha1.Health {
	var problems []volumesv1alpha1.HealthProblem
	for k := range 2 * volumesv1alpha1.MaxHealthProblems {
		problems = append(problems, volumesv1alpha1.HealthProblem{Status: volumesv1alpha1.HealthStorageUnreachable,
			Reason:     fmt.Sprintf("%02d%s", k, strings.Repeat("r", volumesv1alpha1.MaxHealthReasonLength)),
			Message:    strings.Repeat("m", 2*volumesv1alpha1.MaxHealthMessageLength),
			AccessMode: corev1.ReadWriteOncePod, VolumeMode: corev1.PersistentVolumeFilesystem})
	}
	h, _ := NextHealth(nil, problems, time.Unix(1, 0))
	return h
}

// stateOf is a node state with an entry for each line, as small as an entry can be.
func stateOf(lines ...volumesv1alpha1.NodeVolume) *volumesv1alpha1.NodeVolumeState {
	nvs := &volumesv1alpha1.NodeVolumeState{}
	nvs.Name = "node-a"
	for _, l := range lines {
		nvs.Spec.Attachments = append(nvs.Spec.Attachments, volumesv1alpha1.NodeAttachment{VolumeName: l.VolumeName,
			AttachmentUID: l.AttachmentUID, State: volumesv1alpha1.AttachmentAttached})
	}
	nvs.Status.Volumes = lines
	return nvs
}

func sizeOf(t *testing.T, nvs *volumesv1alpha1.NodeVolumeState) int {
	t.Helper()
	b, err := json.Marshal(nvs)
	if err != nil {
		t.Fatal(err)
	}
	return len(b)
}

func TestTheUsesOfOneVolumeTakeABoundedPartOfTheNodeState(t *testing.T) {
	const name = "kubernetes.io/csi/d^tenant"
	other := loud("kubernetes.io/csi/d^victim", 3)
	other.Health = nil
	for _, uses := range []int{volumesv1alpha1.MaxUses, mostPublications} {
		nvs := stateOf(loud(name, uses), other)
		fit(nvs)
		line := nvs.Status.Volumes[0]
		if got := sizeOf(t, nvs); got > 56<<10 || len(line.Publications) != volumesv1alpha1.ShownPublications ||
			int(line.PublicationCount) != uses || line.Unlisted() != uses-volumesv1alpha1.ShownPublications {
			t.Errorf("a volume with %d publications lists %d, counts %d and the object has %d bytes; want %d listed, all "+
				"counted, and 56 KiB at most", uses, len(line.Publications), line.PublicationCount, got,
				volumesv1alpha1.ShownPublications)
		}
		if !equality.Semantic.DeepEqual(nvs.Status.Volumes[1], other) {
			t.Errorf("the line of another volume is %+v beside %d publications, want it unchanged: %+v", nvs.Status.Volumes[1],
				uses, other)
		}
	}
}

func TestAPublicationWithoutItsIntentIsListedFirst(t *testing.T) {
	listed := slices.Clone(publications()[:20])
	listed[19].Orphan = true
	for _, lines := range []int{1, 300, 2000} { // the more lines, the less detail
		var all []volumesv1alpha1.NodeVolume
		for k := range lines {
			l := loud(fmt.Sprintf("kubernetes.io/csi/d^%d", k), 0)
			l.Publications, l.Error, l.Health = listed, nil, nil
			all = append(all, l)
		}
		nvs := stateOf(all...)
		fit(nvs)
		for _, l := range nvs.Status.Volumes {
			if lines < 2000 && (len(l.Publications) == 0 || !l.Publications[0].Orphan) || l.PublicationCount != 20 ||
				!l.HasPublications() {
				t.Fatalf("one of %d lines lists %d publications and counts %d, want an orphan first and 20", lines,
					len(l.Publications), l.PublicationCount)
			}
		}
	}
}

// The manager adds entries up to 1 MiB, with 320 bytes and the name for each line that is to come.
func TestWhateverVolumesANodeHasItsStateCanBeWritten(t *testing.T) {
	const room = 1 << 20
	for what, name := range map[string]string{
		"the shortest names": "kubernetes.io/csi/d^",
		"usual names":        "kubernetes.io/csi/ebs.csi.example.com^pvc-0123abcd-4567-89ab-cdef-",
		"the longest names":  "kubernetes.io/csi/d^" + strings.Repeat("h", volumesv1alpha1.MaxVolumeHandleLength-32),
	} {
		t.Run(what, func(t *testing.T) {
			var lines []volumesv1alpha1.NodeVolume
			for taken := 0; taken < room; {
				line := loud(fmt.Sprintf("%s%08d", name, len(lines)), volumesv1alpha1.MaxUses)
				lines = append(lines, line)
				entry, err := json.Marshal(stateOf(line).Spec.Attachments[0])
				if err != nil {
					t.Fatal(err)
				}
				taken += len(entry) + 320 + len(line.VolumeName)
			}
			nvs := stateOf(lines...)
			for k := range 64 {
				nvs.Status.Drivers = append(nvs.Status.Drivers, volumesv1alpha1.NodeDriver{Name: fmt.Sprintf("d%d", k),
					StorageHealth: worstHealth()})
			}
			fit(nvs)
			got := sizeOf(t, nvs)
			t.Logf("%d volumes with %d publications each: %d bytes", len(lines), volumesv1alpha1.MaxUses, got)
			if got > stored*9/10 {
				t.Errorf("the node state of %d volumes has %d bytes, more than is stored", len(lines), got)
			}
			for i, l := range nvs.Status.Volumes {
				if l.VolumeName != lines[i].VolumeName || l.AttachmentUID != someUID || !l.InUse || !l.MountTableOnly ||
					!l.Unprotected || l.PublishedBy != volumesv1alpha1.PublisherAgent || l.Error == nil ||
					l.PublicationCount != volumesv1alpha1.MaxUses {
					t.Fatalf("line %d is %+v, want all that safety needs of %s", i, l, lines[i].VolumeName)
				}
			}
		})
	}
}
