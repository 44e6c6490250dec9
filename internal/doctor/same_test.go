/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package doctor

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hawser-io/hawser/internal/explain/facts"
)

// refuse adds a pod that waits for a volume whose attach fails.
func (w *world) refuse(n int, node, message string) {
	claim, pv := fmt.Sprint("claim-", n), fmt.Sprint("pv-", n)
	w.addVolume(claim, pv, fmt.Sprint("handle-", n))
	w.addWaiting(fmt.Sprint("pod-", n), node, claim)
	va := w.addAttachment(pv, fmt.Sprint("handle-", n), node)
	va.Status = storagev1.VolumeAttachmentStatus{
		AttachError: &storagev1.VolumeError{Message: message, Time: ago(time.Minute)}}
}

func TestOnlyWhatHasOneCauseIsOneFinding(t *testing.T) {
	const access = "rpc error: code = Internal desc = node %s is not in the access list of %s"
	for name, tt := range map[string]struct {
		broken func(w *world)
		want   []string
	}{
		"one answer about several volumes": {func(w *world) {
			w.refuse(2, "node-a", fmt.Sprintf(access, "node-a", "handle-2"))
			w.refuse(3, "node-b", fmt.Sprintf(access, "node-b", "handle-3"))
		}, []string{"HWS202 2"}},
		"two answers of one driver": {func(w *world) {
			w.refuse(2, "node-a", fmt.Sprintf(access, "node-a", "handle-2"))
			w.refuse(3, "node-b", "rpc error: code = Internal desc = the backend is in maintenance")
		}, []string{"HWS202 1", "HWS202 1"}},
		"a node without the driver beside it": {func(w *world) {
			w.refuse(2, "node-a", fmt.Sprintf(access, "node-a", "handle-2"))
			w.csiNode("node-b").Spec.Drivers = nil
			w.refuse(3, "node-b", "CSINode node-b does not contain driver "+driver)
		}, []string{"HWS202 1", "HWS209 1"}},
		"two objects that are missing": {func(w *world) {
			for i, secret := range []string{"keys", "keys", "users"} {
				pod := w.addWaiting(fmt.Sprint("pod-", i), "node-a", "data")
				w.event(pod.UID, "Pod", "FailedMount", fmt.Sprintf(`MountVolume.SetUp failed: secret %q not found`, secret))
			}
		}, []string{"HWS610 1", "HWS610 2"}},
		"two errors of one class": {func(w *world) {
			for i, message := range []string{"quota of 5 is used up", "quota of 7 is used up", "no such pool"} {
				name := fmt.Sprint("new-", i)
				w.unbound(name)
				w.event("uid-"+w.Claims.Items[len(w.Claims.Items)-1].UID[len("uid-"):], "PersistentVolumeClaim",
					"ProvisioningFailed", message)
			}
		}, []string{"HWS623 1", "HWS623 2"}},
		"two errors before whose events another one is created": {func(w *world) {
			for i, message := range []string{"quota of 5 is used up", "no such pool"} {
				w.unbound(fmt.Sprint("new-", i))
				claim := w.Claims.Items[len(w.Claims.Items)-1]
				w.event(claim.UID, "PersistentVolumeClaim", "ProvisioningFailed", message)
				w.event(claim.UID, "PersistentVolumeClaim", "ExternalProvisioning", "waiting for a volume to be created")
				w.Events.Items[len(w.Events.Items)-1].LastTimestamp = ago(30 * time.Minute)
			}
		}, []string{"HWS623 1", "HWS623 1"}},
	} {
		w := newWorld()
		tt.broken(w)
		var got []string
		for _, f := range Examine(w.Cluster, noon).Findings {
			if f.Severity == Outage {
				got = append(got, fmt.Sprintf("%s %d", f.Code, max(f.Waiting, f.Count)))
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %s, want %s", name, strings.Join(got, ", "), strings.Join(tt.want, ", "))
		}
	}
}

// A pod waits for its kubelet only, once the object exists.
func TestAnObjectThatExistsByNowIsNotMissing(t *testing.T) {
	for name, tt := range map[string]struct {
		err  error
		want []string
	}{
		"it exists":          {nil, []string{}},
		"it does not":        {apierrors.NewNotFound(schema.GroupResource{}, "keys"), []string{"HWS610"}},
		"it may not be read": {apierrors.NewForbidden(schema.GroupResource{}, "keys", nil), []string{"HWS610"}},
	} {
		w := newWorld()
		pod := w.addWaiting("web-2", "node-a", "data")
		pod.CreationTimestamp = ago(3 * time.Minute)
		w.event(pod.UID, "Pod", "FailedMount", `MountVolume.SetUp failed: secret "keys" not found`)
		w.Missing = map[facts.Ref]error{{Kind: facts.KindSecret, Namespace: pod.Namespace, Name: "keys"}: tt.err}
		if got := codesOf(Examine(w.Cluster, noon)); !slices.Equal(got, tt.want) {
			t.Errorf("%s: found %v, want %v", name, got, tt.want)
		}
	}
}
