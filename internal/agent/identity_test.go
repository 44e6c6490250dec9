/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"testing"
	"time"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/driver"
)

func TestWhatIsMountedIsTheVolume(t *testing.T) {
	runAll(t, map[string]func(*testing.T, *cluster){
		"after a reboot a first stage of unknown end is the volume's own":            testUncertainAfterReboot("stage"),
		"after a reboot a first publication of unknown end is the volume's own":      testUncertainAfterReboot("publish"),
		"after a reboot the volume is released though its first stage had no end":    testReleasedAfterReboot,
		"a stage that is put back under another device number is the volume's own":   testUncertainAgain("stage"),
		"a publication that is put back under another device number is the volume's": testUncertainAgain("publish"),
	})
}

func unknownEnd() error {
	return &driver.Error{Outcome: driver.Uncertain, Code: "DeadlineExceeded", Message: "no answer"}
}

// testUncertainAfterReboot: the driver mounts the volume in the new boot, under another device number, and gives no answer.
func testUncertainAfterReboot(method string) func(*testing.T, *cluster) {
	return func(t *testing.T, c *cluster) {
		n := c.node(t)
		n.timeout, n.driver.after = 500*time.Millisecond, true
		v := testVolume{handle: "vol"}
		a := n.start()
		n.attach(v, "uid-1")
		i := n.want(v, "data")
		path := n.ready(i).Status.Path
		n.called("expand vol") // by then the disk knows what is mounted
		a.kill()
		old, _ := n.kernel.at(path)
		n.kernel.reboot()
		n.setBoot("boot-2")
		n.driver.fail(method, unknownEnd())
		n.start()
		n.calledTimes(method+" vol", 3) // asked once more after the answer that did not come
		n.ready(i)
		if e, ok := n.kernel.at(path); !ok || e.SameSource(old) {
			t.Errorf("at the path: %+v, before the reboot: %+v", e, old)
		}
		n.release(i)
		n.gone(v)
		n.nothingLeft()
	}
}

func testReleasedAfterReboot(t *testing.T, c *cluster) {
	n := c.node(t)
	n.timeout, n.driver.after = 500*time.Millisecond, true
	v := testVolume{handle: "vol"}
	a := n.start()
	n.attach(v, "uid-1")
	i := n.want(v, "data")
	n.ready(i)
	a.kill()
	n.kernel.reboot()
	n.setBoot("boot-2")
	n.driver.fail("stage", unknownEnd())
	n.start()
	n.condition(i, volumesv1alpha1.ConditionStaged, volumesv1alpha1.ReasonOutcomeUncertain)
	n.release(i)
	n.gone(v)
	n.nothingLeft()
}

// testUncertainAgain: somebody removes a mount, and the driver puts it back under another device number and gives no answer.
func testUncertainAgain(method string) func(*testing.T, *cluster) {
	return func(t *testing.T, c *cluster) {
		n := c.node(t)
		n.timeout, n.driver.after = 500*time.Millisecond, true
		v := testVolume{handle: "vol"}
		n.start()
		n.attach(v, "uid-1")
		i := n.want(v, "data")
		path := n.ready(i).Status.Path
		n.kernel.renumber()
		n.driver.fail(method, unknownEnd())
		n.kernel.umount(path)
		n.kernel.umount(n.driver.staged("vol").StagingPath)
		n.calledTimes(method+" vol", 3)
		n.ready(i)
		n.release(i)
		n.gone(v)
		n.nothingLeft()
	}
}
