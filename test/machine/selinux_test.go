/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package machine_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/apiserver"
	"github.com/hawser-io/hawser/test/machine/boot"
	"github.com/hawser-io/hawser/test/machine/disk"
)

// withSELinux are the files of a machine that enforces SELinux. Only tests that need them make them.
var withSELinux = sync.OnceValues(func() (boot.Files, error) {
	return boot.PrepareSELinux(context.Background(), os.Stdout)
})

// Labels of two users. The type of files is that of the policy's lxc_contexts.
const (
	one, other = "s0:c1,c2", "s0:c3,c4"
	fileLabel  = "system_u:object_r:container_file_t:"
)

// newSELinuxNode boots a machine that enforces SELinux.
func newSELinuxNode(t *testing.T) *node {
	t.Helper()
	files, err := withSELinux()
	if err != nil {
		t.Fatal(err)
	}
	o := options(nextName())
	o.Files = files
	n := &node{t: t, Machine: start(t, o), agent: "agent", domain: "hawser_agent_t"}
	if got := n.must("getenforce"); got != "Enforcing" {
		t.Fatalf("SELinux of the machine is %s, want Enforcing", got)
	}
	n.loadModules()
	n.begin()
	return n
}

// loadModules loads the policy of the agent, and what is needed to start it.
func (n *node) loadModules() {
	n.t.Helper()
	var paths []string
	for _, module := range []string{"config/selinux/hawser-agent.cil", "test/machine/testdata/agent.cil"} {
		text, err := os.ReadFile(filepath.Join(apiserver.Root(), module))
		n.ok(err)
		path := "/tmp/" + filepath.Base(module)
		paths = append(paths, path)
		n.must("cat >%s <<'EOF'\n%s\nEOF", path, text)
	}
	n.must("echo 0 >/proc/sys/kernel/printk_ratelimit") // shows all that is denied
	begin := time.Now()
	_, err := n.RunFor(n.t.Context(), 8*time.Minute, "semodule -i %s", strings.Join(paths, " "))
	n.ok(err)
	n.t.Logf("the modules were loaded in %.0f s", time.Since(begin).Seconds())
}

// level has the intent ask for a label with this level.
func level(l string) func(*volumesv1alpha1.VolumeAttachmentIntent) {
	return func(i *volumesv1alpha1.VolumeAttachmentIntent) {
		i.Spec.Mount = &volumesv1alpha1.MountSpec{SELinuxOptions: &corev1.SELinuxOptions{Level: l}}
	}
}

// contained runs a script as a container with this level would. It does not need to succeed.
func (n *node) contained(level, script string) (output string, succeeded bool) {
	n.t.Helper()
	// Its output goes through a pipe: the container may not write to the file that collects that of scripts.
	answer, err := n.Try(n.limited(), time.Minute,
		"out=$(runcon system_u:system_r:container_t:%s busybox sh -c '%s' 2>&1); "+
			`status=$?; echo "$out"; exit $status`, level, script)
	n.ok(err)
	return strings.TrimSpace(answer.Output), answer.Exit == 0
}

// confined checks that a container with the level of the volume reads and writes it, and that another one does neither.
func (v *volume) confined(path, level, other string) {
	v.t.Helper()
	if out, ok := v.contained(level, "echo text >"+path+"/file && cat "+path+"/file"); !ok || out != "text" {
		v.t.Errorf("container with level %s: %q, succeeded %t; want that it writes and reads the volume. Denied: %s", level,
			out, ok, v.denied())
	}
	for _, script := range []string{"cat " + path + "/file", "echo text >" + path + "/another"} {
		if out, ok := v.contained(other, script); ok || !strings.Contains(out, "Permission denied") {
			v.t.Errorf("container with level %s: %s: %q, succeeded %t; want it denied", other, script, out, ok)
		}
	}
	if got, want := v.must("stat -c %%C %s/file", path), fileLabel+level; got != want {
		v.t.Errorf("label of a file: %s, want %s", got, want)
	}
}

// denied is what the kernel has denied last.
func (n *node) denied() string {
	answer, err := n.Try(n.limited(), time.Minute, "dmesg | grep avc: | tail -n 12")
	n.ok(err)
	return answer.Output
}

// conflict waits for a conflict of labels, whose message has all texts.
func (v *volume) conflict(texts ...string) {
	v.t.Helper()
	var message string
	v.await(func(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
		if i == nil {
			return false
		}
		c := meta.FindStatusCondition(i.Status.Conditions, volumesv1alpha1.ConditionReady)
		for _, about := range []string{volumesv1alpha1.ConditionStaged, volumesv1alpha1.ConditionPublished} {
			if is := meta.FindStatusCondition(i.Status.Conditions, about); is != nil &&
				is.Reason == volumesv1alpha1.ReasonSELinuxConflict {
				message = c.Message
				return true
			}
		}
		return false
	})
	for _, text := range texts {
		if !strings.Contains(message, text) {
			v.t.Errorf("message of a conflict of labels: %q, want %q in it", message, text)
		}
	}
	v.t.Logf("conflict: %s", message)
}

// another is another intent for the volume's claim.
func (v *volume) another(name string, change ...func(*volumesv1alpha1.VolumeAttachmentIntent)) *volume {
	v.t.Helper()
	a := &volume{node: v.node, name: v.name + name, claim: v.name, handle: v.handle}
	a.want(change...)
	return a
}

func (v *volume) staging() string {
	return fmt.Sprintf("/var/lib/kubelet/plugins/kubernetes.io/csi/%s/%x/globalmount", disk.DriverName,
		sha256.Sum256([]byte(v.handle)))
}

func TestVolumesHaveTheSELinuxLabelOfTheirUsers(t *testing.T) {
	t.Parallel()
	n := newSELinuxNode(t)
	for _, class := range []string{diskExt4, diskXFS} {
		v := n.newClaim(class, "400Mi")
		n.sub(t, class+": a container with the label uses the volume, and one with another does not", func() {
			v.want(level(one))
			v.confined(v.ready(), one, other)
		})
		n.sub(t, class+": a remount with another label changes nothing", func() { v.remount() })
		n.sub(t, class+": another label waits until the first has gone", func() {
			second := v.another("-second", level(other))
			second.conflict(v.name, fileLabel+one, second.name, fileLabel+other)
			v.unwant()
			second.confined(second.ready(), other, one)
			second.release()
		})
	}
	v := n.newClaim(diskExt4, "64Mi")
	n.sub(t, "what is mounted as the kubelet does is shared with its label alone", func() { v.kubeletStaged() })
	n.sub(t, "the agent needs no more than its policy has, and may do no more", n.confinedAgent)
}

// confinedAgent checks that nothing was denied to the agent, and what is denied in its domain.
func (n *node) confinedAgent() {
	got := n.must("tr -d '\\0' </proc/$(cat /run/agent.pid)/attr/current")
	if !strings.Contains(got, ":hawser_agent_t:") {
		n.t.Errorf("the agent runs as %s, want its own domain", got)
	}
	if denied := n.must("dmesg | grep -e 'avc: .*scontext=[^ ]*hawser_agent_t' || true"); denied != "" {
		n.t.Errorf("denied to the agent: %s, want nothing", denied)
	}
	n.must("cp /bin/busybox /run/busybox")
	for _, script := range []string{"echo text >/etc/file", "echo text >/usr/bin/file", "cat /etc/shadow",
		"chcon user_home_t /var/lib/hawser", "/sbin/modprobe dummy"} {
		answer, err := n.Try(n.limited(), time.Minute,
			"runcon -t hawser_agent_t -l s0 /run/busybox sh -c '%s' >/dev/null 2>&1", script)
		n.ok(err)
		if answer.Exit == 0 {
			n.t.Errorf("%s in the domain of the agent succeeds, want it denied", script)
		}
	}
}

// remount has the kernel remount the published path with another label, as drivers do that mount with bind and options.
func (v *volume) remount() {
	path := v.ready()
	for _, options := range []string{"remount,bind,context=" + fileLabel + "s0",
		`remount,bind,context="` + fileLabel + other + `"`} {
		answer, err := v.Try(v.limited(), time.Minute, "mount -o '%s' %s 2>&1", options, path)
		v.ok(err)
		v.t.Logf("mount -o %s: exit code %d: %s", options, answer.Exit, strings.TrimSpace(answer.Output))
	}
	v.confined(path, one, other)
}

// kubeletStaged mounts what a kubelet would, with its option for a pod.
func (v *volume) kubeletStaged() {
	v.want(func(i *volumesv1alpha1.VolumeAttachmentIntent) { i.Spec.DesiredState = volumesv1alpha1.DesiredAttached })
	v.await(func(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
		return i != nil && meta.IsStatusConditionTrue(i.Status.Conditions, volumesv1alpha1.ConditionAttached)
	})
	v.must(`d=$(for p in /sys/block/sd*; do [ "$(tail -c +5 $p/device/vpd_pg80)" = %s ] && basename $p; done)
		mkfs.ext4 -q /dev/$d; mkdir -p %s; mount -o 'context="%s%s"' /dev/$d %[2]s`, v.handle, v.staging(), fileLabel, one)
	wrong := v.another("-wrong", level(other))
	wrong.conflict(fileLabel+one, wrong.name, fileLabel+other)
	same := v.another("-same", level(one))
	v.confined(same.ready(), one, other)
	wrong.unwant()
	same.unwant()
	v.release()
}
