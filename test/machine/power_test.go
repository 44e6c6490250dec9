/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package machine_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hawser-io/hawser/test/csiloop/faults"
)

// moment is a driver's call in which a volume's life is interrupted, before or after its effect.
type moment struct {
	method string
	when   faults.Moment
}

func (m moment) String() string { return fmt.Sprintf("%s %s its effect", m.method, m.when) }

// moments of all steps that a driver carries out.
func moments() []moment {
	var all []moment
	for _, method := range []string{stage, publish, expand, unpublish, unstage} {
		all = append(all, moment{method, faults.Before}, moment{method, faults.After})
	}
	return all
}

const (
	stage     = "NodeStageVolume"
	publish   = "NodePublishVolume"
	expand    = "NodeExpandVolume"
	unpublish = "NodeUnpublishVolume"
	unstage   = "NodeUnstageVolume"
)

// interruption is a volume whose life is interrupted.
type interruption struct {
	*volume
	moment moment
	// fault that keeps the call from ending, until it is removed.
	fault string
}

// bring brings the volume to its moment.
func (i *interruption) bring() {
	i.t.Helper()
	hang := faults.Fault{Method: i.moment.method, When: i.moment.when, Action: faults.Hang, Volume: i.handle}
	switch i.moment.method {
	case stage, publish: // the fault is there before the intent
	case expand:
		i.fill()
		i.fault = i.node.fault(hang)
		i.grow("192Mi")
	case unpublish, unstage:
		i.fill()
		i.fault = i.node.fault(hang)
		i.unwant()
	}
	i.ok(faults.WaitHits(i.limited(), faultsDir(), i.fault, 1))
}

// fill writes a file that must survive.
func (v *volume) fill() {
	v.t.Helper()
	v.must("echo kept >%s/file && sync -f %[1]s/file", v.ready())
}

// mounted waits until the volume is mounted at its path. Until the agent reports for the first time after a boot, its
// intents are as they were before.
func (v *volume) mounted() string {
	v.t.Helper()
	path := v.ready()
	v.must("until grep -q ' %s ' /proc/mounts; do sleep 0.1; done", path)
	return v.ready()
}

func (v *volume) grow(size string) {
	v.t.Helper()
	claim := &corev1.PersistentVolumeClaim{}
	v.ok(lab.sys.Client.Get(v.limited(), client.ObjectKey{Namespace: namespace, Name: v.name}, claim))
	before := client.MergeFrom(claim.DeepCopy())
	claim.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse(size)
	v.ok(lab.sys.Client.Patch(v.limited(), claim, before))
}

// whole checks that the volume came to what is wanted of it, with what it had before.
func (i *interruption) whole() {
	i.t.Helper()
	switch i.moment.method {
	case unpublish, unstage:
		i.released()
		i.want()
	case expand:
		i.await(hasGrown)
		i.must("test $(df --output=size -m %s | tail -n 1) -gt 150 # MiB, of 192", i.mounted())
	}
	path := i.mounted()
	if i.moment.method != stage && i.moment.method != publish {
		if got := i.must("cat %s/file", path); got != "kept" {
			i.t.Errorf("the volume has %q, want what was written before", got)
		}
	}
	i.must("echo new >%s/new && sync -f %[1]s/new", path)
	i.release()
}

func TestAVolumeIsWholeAfterAResetOrAPowerCutInAnyStep(t *testing.T) {
	t.Parallel()
	for name, interrupt := range map[string]func(*node, context.Context) error{
		"reset": func(n *node, ctx context.Context) error { return n.Reset(ctx) },
		"power cut": func(n *node, ctx context.Context) error {
			if err := n.CutPower(); err != nil {
				return err
			}
			return n.PowerOn(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) { testInterruption(t, interrupt) })
	}
}

// testInterruption brings one volume to each moment, and then interrupts all of them at once.
func testInterruption(t *testing.T, interrupt func(*node, context.Context) error) {
	n := newNode(t)
	bystander, torn := n.newVolume(diskExt4, "64Mi"), n.newVolume(diskExt4, "64Mi")
	bystander.fill()
	torn.fill()
	var all []*interruption
	for _, m := range moments() {
		i := &interruption{moment: m}
		if m.method == stage || m.method == publish {
			i.volume, i.fault = n.newInterrupted(faults.Fault{Method: m.method, When: m.when, Action: faults.Hang})
		} else {
			i.volume = n.newVolume(diskExt4, "64Mi")
		}
		all = append(all, i)
	}
	for _, i := range all {
		i.bring()
	}
	before := n.BootID
	n.ok(interrupt(n, t.Context()))
	if n.BootID == before {
		t.Errorf("boot ID %s after the interruption, want another one", n.BootID)
	}
	for _, i := range all {
		n.ok(faults.Remove(faultsDir(), i.fault))
	}
	torn.tear()
	begin := time.Now()
	n.startPrograms()
	for what, v := range map[string]*volume{"was only published": bystander, "has half a record": torn} {
		if got := n.must("cat %s/file", v.mounted()); got != "kept" {
			t.Errorf("a volume that %s has %q, want what was written before", what, got)
		}
	}
	if log, err := n.Log(n.limited(), "agent"); err != nil || !strings.Contains(log, "record is unreadable") {
		(&detection{t: t}).end()
		t.Errorf("the agent's log, error %v, has nothing of the torn record, want it: %s", err, log)
	}
	for _, i := range all {
		t.Run(i.moment.String(), func(t *testing.T) {
			n.t = t
			i.whole()
			t.Logf("whole and released %.1f s after the agent's start", time.Since(begin).Seconds())
		})
	}
	n.t = t
	bystander.release()
	torn.release()
}

// tear leaves half of the volume's record, as a filesystem may that does not keep the order of writes.
func (v *volume) tear() {
	v.t.Helper()
	v.must("f=$(grep -l %s /var/lib/hawser/volumes/*.json); truncate -s $(($(stat -c %%s $f) / 2)) $f", v.handle)
}
