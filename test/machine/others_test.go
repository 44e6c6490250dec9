/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package machine_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/system"
)

// publishOthers publishes and releases new volumes of the classes while something hangs, and notes how long that takes.
func (n *node) publishOthers(while string, classes ...string) {
	n.t.Helper()
	for _, class := range classes {
		begin := time.Now()
		v := n.newVolume(class, "64Mi")
		v.fill()
		published := time.Since(begin)
		begin = time.Now()
		v.release()
		released := time.Since(begin)
		noteWaits(published, released)
		n.t.Logf("%s: a new volume of %s is Ready and written after %.1f s, and released after %.1f s", while, class,
			published.Seconds(), released.Seconds())
		if published > driverTimeout || released > driverTimeout {
			n.t.Errorf("%s: a new volume of %s is Ready after %s, and released after %s, want less than a call may hang", while,
				class, published, released)
		}
	}
}

// histogram of the times that other volumes needed beside faults.
func histogram(times []time.Duration) string {
	if len(times) == 0 {
		return ""
	}
	slices.Sort(times)
	var out strings.Builder
	fmt.Fprintf(&out, "%d times a volume was published or released beside a fault, the longest %.1f s, allowed %.0f s:\n",
		len(times), times[len(times)-1].Seconds(), driverTimeout.Seconds())
	for _, seconds := range []int{2, 5, 10, 15, 20, 30} {
		within, _ := slices.BinarySearch(times, time.Duration(seconds)*time.Second+1)
		fmt.Fprintf(&out, "  within %2d s: %d\n", seconds, within)
	}
	return out.String()
}

// awaitExamination waits until the agent has examined the volumes: it reports another one, whose disk is pulled out.
func (n *node) awaitExamination() {
	n.t.Helper()
	other := n.newVolume(diskExt4, "64Mi")
	other.fill()
	struck := time.Now()
	pullOut(other)
	other.sick(struck, "its block device is gone")
	other.release()
}

// isWell checks that the volume is Ready since then.
func (v *volume) isWell(since time.Time) {
	v.t.Helper()
	c := meta.FindStatusCondition(v.await(system.Ready).Status.Conditions, volumesv1alpha1.ConditionReady)
	if c == nil || c.LastTransitionTime.After(since) {
		v.t.Errorf("condition Ready: %+v, want that the volume is Ready since %s", c, since)
	}
}

// sumOf is a script that prints the checksum of what is on a device.
func sumOf(device string) string {
	return "sync; echo 3 >/proc/sys/vm/drop_caches; sha256sum " + device
}

func TestExaminationsChangeNothingOfAVolume(t *testing.T) {
	t.Parallel()
	n, target := newISCSINode(t, 2)
	server := n.newServer("a", 1)
	nfs := n.newVolume(server.Name, "1Gi")
	nfs.fill()
	volumes := map[string]*volume{"NFS": nfs}
	sums := map[string]string{"NFS": fmt.Sprintf(`find %s -printf '%%P %%T@ %%C@\n' -type f -exec sha256sum {} +`,
		server.Export())}
	for class, size := range map[string]string{diskExt4: "64Mi", diskXFS: "400Mi", byFUSE: "64Mi", mappedExt4: "64Mi",
		mappedXFS: "400Mi", target.Name: "64Mi"} {
		v := n.newVolume(class, size)
		v.fill()
		at := v.ready()
		if class != byFUSE { // what the filesystem writes by itself after a mount and a change
			n.must("while pgrep -x ext4lazyinit; do sleep 0.1; done; fsfreeze -f %s; fsfreeze -u %[1]s", at)
		}
		volumes[class], sums[class] = v, sumOf("$(findmnt -n -o SOURCE "+at+")")
		if class == byFUSE {
			sums[class] = sumOf(device(t, n.Machine, v.handle))
		}
	}
	raw := n.newClaim(diskExt4, "64Mi", func(c *corev1.PersistentVolumeClaim) {
		c.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock)
	})
	raw.want()
	volumes["raw"], sums["raw"] = raw, sumOf(raw.ready())
	before := map[string]string{}
	for what, script := range sums {
		before[what] = n.must("%s", script)
	}
	n.ok(n.Kill(n.limited(), "agent"))
	n.startAgent()
	n.awaitExamination()
	for what, script := range sums {
		if after := n.must("%s", script); after != before[what] {
			t.Errorf("%s: content %s after examinations and readings of figures, want %s", what, after, before[what])
		}
	}
	for _, v := range volumes {
		v.release()
	}
	n.loggedOut()
}
