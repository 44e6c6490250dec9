/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package machine_test

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/cli"
	"github.com/hawser-io/hawser/internal/install"
	"github.com/hawser-io/hawser/test/machine/nfs"
)

// appendAllTheTime has a process append numbers to a file of the volume.
func (v *volume) appendAllTheTime() {
	v.t.Helper()
	v.ok(v.Launch(v.limited(), "append-"+v.name, fmt.Sprintf(`sh -c 'cd %s && i=0 && while sleep 0.1; do i=$((i + 1))
		echo $i >>numbers && sync numbers || echo failed at $i; done'`, v.ready())))
}

// appended ends that process, and checks that no write failed and none was lost.
func (v *volume) appended() {
	v.t.Helper()
	v.ok(v.Kill(v.limited(), "append-"+v.name))
	got := v.must(`cat /var/log/append-%s.log; awk '$1 != NR { print "line", NR, "is", $1 }
		END { print (NR > 20 ? "enough" : NR) }' %s/numbers`, v.name, v.ready())
	if got != "enough" {
		v.t.Errorf("what was appended over the fault: %s, want enough lines, each written once", got)
	}
}

// threadsHanging is how many threads of the program wait for the kernel, uninterruptibly.
func (n *node) threadsHanging(program string) string {
	n.t.Helper()
	return n.must("cat /proc/$(cat /run/%s.pid)/task/*/stat | sed 's/.*) //' | grep -c ^D || true", program)
}

// why is what kubectl hawser why prints of the intent.
func (v *volume) why() string {
	v.t.Helper()
	var out bytes.Buffer
	cli.Run(v.limited(), []string{"why", "intent", v.name, "-n", namespace, "--kubeconfig", lab.sys.Kubeconfig(),
		"--hawser-namespace", install.Namespace()},
		genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &out})
	return out.String()
}

// shown are the conditions of the intent and its last error, in lines.
func shown(i *volumesv1alpha1.VolumeAttachmentIntent) string {
	var lines strings.Builder
	for _, c := range i.Status.Conditions {
		fmt.Fprintf(&lines, "%s %s %s: %s\n", c.Type, c.Status, c.Reason, c.Message)
	}
	if e := i.Status.LastError; e != nil {
		fmt.Fprintf(&lines, "last error: %s %s %s (%d)\n", e.Operation, e.Code, e.Message, e.Attempts)
	}
	return lines.String()
}

// outage is of two NFS servers of a node: one stops, and the network of the other one is cut.
type outage struct {
	*node
	stops, isCut *nfs.Server
	// hanging are volumes of these servers by what is special about them, and leaving one that is released meanwhile.
	hanging map[string]*volume
	leaving *volume
	// others are the classes of volumes that are to be published meanwhile.
	others []string
}

func newOutage(n *node) *outage {
	n.t.Helper()
	o := &outage{node: n, stops: n.newServer("a", 1), isCut: n.newServer("b", 2)}
	o.others = []string{diskExt4, n.newServer("c", 3).Name}
	o.hanging = map[string]*volume{"written": n.newVolume(o.stops.Name, "1Gi"), "idle": n.newVolume(o.stops.Name, "1Gi"),
		"cut off": n.newVolume(o.isCut.Name, "1Gi")}
	o.leaving = n.newVolume(o.stops.Name, "1Gi")
	for _, v := range o.hanging {
		v.fill()
	}
	o.leaving.fill()
	return o
}

// begin begins the outage, and checks what is reported.
func (o *outage) begin() {
	o.t.Helper()
	begin := time.Now()
	o.ok(o.stops.Stop(o.limited()))
	o.ok(o.isCut.Cut(o.limited()))
	o.leaving.unwant()
	o.publishOthers("while the servers do not answer", o.others...)
	for name, v := range o.hanging {
		message := v.sick(begin, "it does not answer: an access to it runs since")
		o.t.Logf("the %s volume is sick after %.0f s: %s", name, time.Since(begin).Seconds(), message)
	}
	o.sickNode("it does not answer")
	i := o.leaving.await(func(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
		c := meta.FindStatusCondition(i.Status.Conditions, volumesv1alpha1.ConditionPublished)
		return c != nil && c.Reason == volumesv1alpha1.ReasonVolumeSick && i.Status.LastError != nil &&
			strings.Contains(c.Message, "it is released once")
	})
	o.t.Logf("the volume that is released, after %.0f s:\n%s", time.Since(begin).Seconds(), shown(i))
	o.leaving.explains("HWS333", "it is released once")
}

var accessSince = regexp.MustCompile(`an access to it runs since ([^ ,]+)`)

// foundHanging waits until the volume is reported for an access that began after that, as the machine's clock has it.
func (v *volume) foundHanging(after time.Time) {
	v.t.Helper()
	v.await(func(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
		c := meta.FindStatusCondition(i.Status.Conditions, volumesv1alpha1.ConditionPublished)
		if c == nil {
			return false
		}
		found := accessSince.FindStringSubmatch(c.Message)
		if found == nil {
			return false
		}
		since, err := time.Parse(time.RFC3339, found[1])
		return err == nil && since.After(after.Add(-2*time.Second))
	})
}

// restartAgent ends the agent at once and starts it again in the middle of the outage.
func (o *outage) restartAgent() {
	o.t.Helper()
	o.ok(o.Kill(o.limited(), "agent"))
	begin := time.Now()
	o.startAgent()
	o.publishOthers("with a new agent", o.others...)
	for _, v := range o.hanging {
		v.foundHanging(begin)
	}
	o.t.Logf("sick %.0f s after the restart of the agent", time.Since(begin).Seconds())
}

// end ends the outage, and checks that everything comes to its end without any act.
func (o *outage) end() {
	o.t.Helper()
	for driver, most := range map[string]int{"csi-nfs": 3 * (len(o.hanging) + 1), "agent": 2 * (len(o.hanging) + 1)} {
		hanging, err := strconv.Atoi(o.threadsHanging(driver))
		o.ok(err)
		o.t.Logf("threads that hang in the kernel in the end: %d of %s", hanging, driver)
		if hanging > most {
			o.t.Errorf("%d threads of %s hang in the kernel, want at most %d for %d volumes", hanging, driver, most,
				len(o.hanging)+1)
		}
	}
	o.ok(o.stops.Continue(o.limited()))
	o.ok(o.isCut.Connect(o.limited()))
	begin := time.Now()
	o.leaving.released()
	o.t.Logf("the volume that was released is gone %.0f s after the servers are back", time.Since(begin).Seconds())
	for name, v := range o.hanging {
		if got := o.must("cat %s/file", v.ready()); got != "kept" {
			o.t.Errorf("the %s volume has %q, want what was written before", name, got)
		}
		o.t.Logf("the %s volume is Ready %.0f s after the servers are back", name, time.Since(begin).Seconds())
	}
}

func TestAnNFSServerThatDoesNotAnswerHangsNothingElse(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	o := newOutage(n)
	well := n.newVolume(diskExt4, "64Mi")
	well.fill()
	o.hanging["written"].appendAllTheTime()
	n.writeAllTheTime(well)
	n.publishOthers("before", o.others...)
	o.begin()
	o.restartAgent()
	o.end()
	o.hanging["written"].appended()
	n.longestWrite(well)
	well.release()
	for _, v := range o.hanging {
		v.release()
	}
	n.inOrder()
}

func TestAnNFSExportThatIsGoneIsNamed(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	server := n.newServer("a", 1)
	used, unused := n.newVolume(n.Name+"-a", "1Gi"), n.newVolume(n.Name+"-a", "1Gi")
	used.fill()
	unused.fill()
	user := used.user()
	t.Logf("the mount table:\n%s", n.must("grep ' nfs4 ' /proc/self/mountinfo"))
	// Directories that come back are others to the server, and what the old ones were stays stale.
	struck := time.Now()
	n.must("cp -a %s /srv/copy && rm -rf %[1]s/*", server.Export())
	message := used.sick(struck, "stale", fmt.Sprintf("process %s (sleep)", user))
	t.Logf("the volume with a user after %.0f s: %s", time.Since(struck).Seconds(), message)
	i := unused.await(func(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
		c := meta.FindStatusCondition(i.Status.Conditions, volumesv1alpha1.ConditionPublished)
		return c != nil && c.Reason == volumesv1alpha1.ReasonPublishFailed
	})
	t.Logf("the volume without a user after %.0f s:\n%s", time.Since(struck).Seconds(), shown(i))
	unused.explains("HWS307", "No such file or directory")
	n.must("cp -a /srv/copy/* %s", server.Export())
	back := time.Now()
	n.ok(n.Kill(n.limited(), "user-"+used.name))
	for name, v := range map[string]*volume{"used": used, "unused": unused} {
		if got := n.must("cat %s/file", v.ready()); got != "kept" {
			t.Errorf("the %s volume has %q, want what was written before", name, got)
		}
		t.Logf("the %s volume is Ready %.0f s after its directory is back", name, time.Since(back).Seconds())
		v.release()
	}
	n.inOrder()
}
