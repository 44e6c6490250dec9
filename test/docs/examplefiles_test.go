/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package docs

import (
	"encoding/xml"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/apiserver"
)

// published is the path of the only intent of an example.
func published(t *testing.T, file, namespace string) string {
	t.Helper()
	intent := &volumesv1alpha1.VolumeAttachmentIntent{}
	manifest(t, file, intent)
	intent.Namespace = namespace
	return pathOf(intent)
}

const unit = "systemd-unit/recorder.service"

func TestTheUnitWaitsForTheMountOfItsIntent(t *testing.T) {
	path := published(t, "systemd-unit/volume.yaml", "host-services")
	text := read(t, filepath.Join(apiserver.Root(), "examples", unit))
	mount := mountUnit(path)
	for _, line := range []string{"BindsTo=" + mount, "After=" + mount, "WantedBy=" + mount,
		"AssertPathIsMountPoint=" + path, "WorkingDirectory=" + path} {
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("%s has no line %s", unit, line)
		}
	}
}

// mountUnit is what systemd-escape --path --suffix=mount prints for a path.
func mountUnit(path string) string {
	var name strings.Builder
	for _, c := range []byte(strings.Trim(path, "/")) {
		switch {
		case c == '/':
			name.WriteByte('-')
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == ':', c == '_', c == '.':
			name.WriteByte(c)
		default:
			fmt.Fprintf(&name, `\x%02x`, c)
		}
	}
	return name.String() + ".mount"
}

func TestSystemdAcceptsTheUnit(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("LEFT OUT (needs systemd-analyze)")
	}
	path := published(t, "systemd-unit/volume.yaml", "host-services")
	escaped, err := exec.CommandContext(t.Context(), "systemd-escape", "--path", "--suffix=mount", path).Output()
	if got := strings.TrimSpace(string(escaped)); err != nil || got != mountUnit(path) {
		t.Errorf("systemd-escape makes %s of %s (%v), want %s", got, path, err, mountUnit(path))
	}
	// systemd makes the mount unit from the mount itself, and refuses one whose path does not go with its name.
	dir := t.TempDir()
	for name, text := range map[string]string{
		filepath.Base(unit): read(t, filepath.Join(apiserver.Root(), "examples", unit)),
		mountUnit(path):     "[Mount]\nWhat=/dev/null\nWhere=" + path + "\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	verify := exec.CommandContext(t.Context(), "systemd-analyze", "verify", "--man=no",
		filepath.Join(dir, filepath.Base(unit)))
	verify.Env = append(os.Environ(), "SYSTEMD_UNIT_PATH="+dir+":")
	if output, err := verify.CombinedOutput(); err != nil || strings.Contains(string(output), "recorder.service") {
		t.Errorf("systemd-analyze verify: %v\n%s", err, output)
	}
}

func TestTheStaticPodWaitsForADirectoryOfItsVolume(t *testing.T) {
	pod := &corev1.Pod{}
	manifest(t, "static-pod/registry.yaml", pod)
	path := published(t, "static-pod/volume.yaml", pod.Namespace)
	host := pod.Spec.Volumes[0].HostPath
	if host == nil || host.Path != path+"/data" || host.Type == nil || *host.Type != corev1.HostPathDirectory {
		t.Errorf("volume of the static pod: %+v, want a directory in %s that has to exist", host, path)
	}
}

func TestTheDiskOfTheMachineIsTheDeviceOfItsIntent(t *testing.T) {
	disk := struct {
		XMLName xml.Name `xml:"disk"`
		Type    string   `xml:"type,attr"`
		Source  struct {
			Device string `xml:"dev,attr"`
		} `xml:"source"`
		Driver struct {
			Cache string `xml:"cache,attr"`
		} `xml:"driver"`
	}{}
	if err := xml.Unmarshal([]byte(read(t, filepath.Join(apiserver.Root(), "examples", "virtual-machine", "disk.xml"))),
		&disk); err != nil {
		t.Fatal(err)
	}
	path := published(t, "virtual-machine/disk.yaml", "machines")
	if disk.Type != "block" || disk.Source.Device != path || disk.Driver.Cache != "none" {
		t.Errorf("disk of the machine: %+v, want the block device %s, without a cache", disk, path)
	}
}
