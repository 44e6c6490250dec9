/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package csi

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	clocktesting "k8s.io/utils/clock/testing"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/driver"
)

// node is a kubelet directory with a Registry that watches it.
type node struct {
	dir      string
	registry *Registry
	clock    *clocktesting.FakeClock
	stop     context.CancelFunc
	stopped  chan error
}

func startNode(t *testing.T, before ...func(dir string)) *node {
	t.Helper()
	n := &node{dir: shortDir(t), clock: clocktesting.NewFakeClock(time.Now()), stopped: make(chan error, 1)}
	for _, f := range before {
		f(n.dir)
	}
	registry, err := NewRegistry(Options{KubeletDir: n.dir, Clock: n.clock})
	if err != nil {
		t.Fatal(err)
	}
	n.registry = registry
	ctx, stop := context.WithCancel(context.Background())
	n.stop = stop
	go func() { n.stopped <- registry.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := await(t, "the registry's end", n.stopped); err != nil {
			t.Error(err)
		}
	})
	return n
}

func (n *node) socket(name string) string { return filepath.Join(n.dir, "plugins_registry", name) }

// register starts a driver with a registration socket and its own socket. stop ends both.
func (n *node) register(t *testing.T, socketName string, s *scripted) (endpoint string, stop func()) {
	t.Helper()
	mkdirs(t, n.dir, "plugins_registry")
	endpoint = filepath.Join(mkdirs(t, n.dir, "plugins", socketName), "csi.sock")
	s.info = &registerapi.PluginInfo{Type: registerapi.CSIPlugin, Name: driverName, Endpoint: endpoint,
		SupportedVersions: []string{"1.0.0"}}
	stopEndpoint := s.serve(t, endpoint)
	stopRegistration := s.serve(t, n.socket(socketName))
	return endpoint, func() { stopEndpoint(); stopRegistration() }
}

func mkdirs(t *testing.T, elem ...string) string {
	t.Helper()
	dir := filepath.Join(elem...)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	return dir
}

// await checks the registry after each of its signals until the condition holds.
func (n *node) await(t *testing.T, what string, good func() bool) {
	t.Helper()
	for !good() {
		await(t, what, n.registry.Changed())
	}
}

func (n *node) knows() bool {
	_, ok := n.registry.Get(driverName)
	return ok
}

func stage(t *testing.T, n *node) error {
	t.Helper()
	d, ok := n.registry.Get(driverName)
	if !ok {
		t.Fatalf("driver %s is not known, want that it is", driverName)
	}
	return d.Stage(t.Context(), driver.StageRequest{})
}

func TestADriverThatRegistersIsKnown(t *testing.T) {
	n := startNode(t)
	s := &scripted{capabilities: allCapabilities(), nodeID: "node-7"}
	n.register(t, "a-reg.sock", s)
	n.await(t, "the driver", n.knows)
	if lines := n.registry.Drivers(); len(lines) != 1 || lines[0].Name != driverName || lines[0].NodeID != "node-7" {
		t.Errorf("known drivers: %+v, want %s on node-7 alone", lines, driverName)
	}
	if err := stage(t, n); err != nil || len(s.received()) != 1 {
		t.Errorf("staging with the new driver: error %v, requests %v; want none and one", err, s.received())
	}
}

func TestADriverThatRegisteredBeforeTheStartIsKnown(t *testing.T) {
	n := startNode(t, func(dir string) {
		(&node{dir: dir}).register(t, "a-reg.sock", &scripted{})
	})
	n.await(t, "the driver", n.knows)
}

func TestADriverWithoutAnEndpointAnswersAtItsRegistrationSocket(t *testing.T) {
	n := startNode(t)
	s := &scripted{info: &registerapi.PluginInfo{Type: registerapi.CSIPlugin, Name: driverName,
		SupportedVersions: []string{"v1.2"}}}
	mkdirs(t, n.dir, "plugins_registry")
	s.serve(t, n.socket("a-reg.sock"))
	n.await(t, "the driver", n.knows)
}

func TestARegistrationDirectoryThatIsMissingIsReported(t *testing.T) {
	registry, err := NewRegistry(Options{KubeletDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if err := registry.Readable(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("registration directory before it was created: error %v, want %v", err, fs.ErrNotExist)
	}
	n := startNode(t)
	n.register(t, "a-reg.sock", &scripted{})
	n.await(t, "the driver", n.knows)
	if err := n.registry.Readable(); err != nil {
		t.Errorf("registration directory after the start: error %v, want none", err)
	}
}

func TestADriverThatRestartsStaysKnown(t *testing.T) {
	n := startNode(t)
	_, stop := n.register(t, "a-reg.sock", &scripted{capabilities: allCapabilities()})
	n.await(t, "the driver", n.knows)
	stop()
	if err := stage(t, n); driver.OutcomeOf(err) != driver.Transient {
		t.Errorf("staging while driver %s is down: error %v, want Transient", driverName, err)
	}
	// The driver returns as a new version with fewer capabilities.
	n.register(t, "a-reg.sock", &scripted{})
	n.await(t, "the new description", func() bool { return len(n.registry.Drivers()[0].Capabilities) == 0 })
	if err := stage(t, n); err != nil {
		t.Error(err)
	}
	n.clock.Step(2 * DefaultForgetAfter)
	if !n.knows() {
		t.Errorf("driver %s is forgotten although it is back, want it known", driverName)
	}
}

func TestADriverThatDoesNotReturnIsForgotten(t *testing.T) {
	n := startNode(t)
	_, stop := n.register(t, "a-reg.sock", &scripted{})
	n.await(t, "the driver", n.knows)
	stop()
	waitFor(t, "the timer", n.clock.HasWaiters)
	n.clock.Step(DefaultForgetAfter - time.Second)
	if !n.knows() {
		t.Errorf("driver %s is forgotten a second early, want it known until then", driverName)
	}
	n.clock.Step(time.Second)
	n.await(t, "the driver's end", func() bool { return !n.knows() })
	if lines := n.registry.Drivers(); len(lines) != 0 {
		t.Errorf("known drivers after the end of %s: %+v, want none", driverName, lines)
	}
}

// waitFor polls a condition that has no signal.
func waitFor(t *testing.T, what string, good func() bool) {
	t.Helper()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	deadline := time.After(waitTimeout)
	for !good() {
		select {
		case <-ticker.C:
		case <-deadline:
			t.Fatalf("%s did not come within %s, want it", what, waitTimeout)
		}
	}
}

func TestADriverThatRestartsWithoutItsRegistrarIsIdentifiedAgain(t *testing.T) {
	n := startNode(t)
	s := &scripted{}
	mkdirs(t, n.dir, "plugins_registry")
	endpoint := filepath.Join(mkdirs(t, n.dir, "plugins", "a"), "csi.sock")
	s.info = &registerapi.PluginInfo{Type: registerapi.CSIPlugin, Name: driverName, Endpoint: endpoint,
		SupportedVersions: []string{"1.0.0"}}
	stop := s.serve(t, endpoint)
	s.serve(t, n.socket("a-reg.sock"))
	n.await(t, "the driver", n.knows)
	stop()
	(&scripted{capabilities: allCapabilities()}).serve(t, endpoint)
	n.await(t, "the new description",
		func() bool { return len(n.registry.Drivers()[0].Capabilities) == len(allCapabilities()) })
}

func TestTheLaterOfTwoSocketsOfADriverIsUsedWhileItExists(t *testing.T) {
	n := startNode(t)
	nodeID := func() string { return n.registry.Drivers()[0].NodeID }
	n.register(t, "old-reg.sock", &scripted{nodeID: "old"})
	n.await(t, "the driver", n.knows)
	_, stop := n.register(t, "new-reg.sock", &scripted{nodeID: "new"})
	n.await(t, "the later driver", func() bool { return nodeID() == "new" })
	stop()
	waitFor(t, "the return to the earlier driver", func() bool { return nodeID() == "old" })
}

func TestOtherPluginsAreIgnored(t *testing.T) {
	n := startNode(t)
	mkdirs(t, n.dir, "plugins_registry")
	for name, info := range map[string]*registerapi.PluginInfo{
		"device.sock": {Type: registerapi.DevicePlugin, Name: "gpu", SupportedVersions: []string{"v1beta1"}},
		"old.sock":    {Type: registerapi.CSIPlugin, Name: "old.csi.test", SupportedVersions: []string{"0.3.0"}},
		".hidden":     {Type: registerapi.CSIPlugin, Name: "hidden.csi.test", SupportedVersions: []string{"1.0.0"}},
		"own.sock": {Type: registerapi.CSIPlugin, Name: volumesv1alpha1.InlineDriver,
			SupportedVersions: []string{"1.0.0"}},
	} {
		(&scripted{info: info}).serve(t, n.socket(name))
	}
	if err := os.WriteFile(n.socket("file.sock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	n.register(t, "z-reg.sock", &scripted{})
	n.await(t, "the driver", n.knows)
	waitFor(t, "the old driver's next attempt", n.clock.HasWaiters) // the other plugins were asked once before
	if lines := n.registry.Drivers(); len(lines) != 1 {
		t.Errorf("known drivers: %+v, want %s alone", lines, driverName)
	}
}

func TestAPluginThatHangsDelaysNoOther(t *testing.T) {
	n := startNode(t)
	mkdirs(t, n.dir, "plugins_registry")
	mute(t, n.socket("a-hangs.sock"))
	n.register(t, "b-reg.sock", &scripted{})
	n.await(t, "the driver", n.knows)
}

func TestASocketWithoutAListenerIsRetried(t *testing.T) {
	n := startNode(t)
	dir := mkdirs(t, n.dir, "plugins_registry")
	socket := filepath.Join(dir, "a-reg.sock")
	// A crash leaves a socket without a listener.
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(n.dir, "stale"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	listener.SetUnlinkOnClose(false)
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(n.dir, "stale"), socket); err != nil {
		t.Fatal(err)
	}
	s := &scripted{info: &registerapi.PluginInfo{Type: registerapi.CSIPlugin, Name: driverName,
		SupportedVersions: []string{"1.0.0"}}}
	fresh := filepath.Join(n.dir, "fresh")
	s.serve(t, fresh)
	if err := os.Rename(fresh, socket); err != nil {
		t.Fatal(err)
	}
	n.await(t, "the driver", n.knows)
}

func TestADriverThatCannotDescribeItselfYetIsAskedAgain(t *testing.T) {
	n := startNode(t)
	s := &scripted{refusal: status.Error(codes.Internal, "no metadata service")}
	n.register(t, "a-reg.sock", s)
	waitFor(t, "the wait for the next attempt", n.clock.HasWaiters)
	if n.knows() {
		t.Errorf("driver %s without a description is known, want it unknown", driverName)
	}
	s.mu.Lock()
	s.refusal = nil
	s.mu.Unlock()
	n.clock.Step(time.Second)
	n.await(t, "the driver", n.knows)
}

func TestADriverWhoseNamesDoNotFitIntoANodeStateIsNotTakenUp(t *testing.T) {
	for what, c := range map[string]struct{ name, nodeID int }{
		"its own name":         {name: volumesv1alpha1.MaxDriverNameLength + 1, nodeID: 1},
		"its name of the node": {name: volumesv1alpha1.MaxDriverNameLength, nodeID: volumesv1alpha1.MaxNodeIDLength + 1},
	} {
		n := startNode(t, func(dir string) { mkdirs(t, dir, "plugins_registry") })
		endpoint := filepath.Join(n.dir, "csi.sock")
		s := &scripted{nodeID: strings.Repeat("n", c.nodeID), info: &registerapi.PluginInfo{
			Type: registerapi.CSIPlugin, Name: strings.Repeat("d", c.name), Endpoint: endpoint,
			SupportedVersions: []string{"1.0.0"},
		}}
		s.serve(t, endpoint)
		s.serve(t, n.socket("a-reg.sock"))
		waitFor(t, "the next attempt at a driver that exceeds "+what, n.clock.HasWaiters)
		if lines := n.registry.Drivers(); len(lines) != 0 {
			t.Errorf("with %s too long the drivers are %+v, want none", what, lines)
		}
	}
}

func TestTheDirectoryMayBeRemovedAndCreatedAgain(t *testing.T) {
	n := startNode(t)
	_, stop := n.register(t, "a-reg.sock", &scripted{nodeID: "before"})
	n.await(t, "the driver", n.knows)
	stop()
	dir := filepath.Join(n.dir, "plugins_registry")
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the directory", func() bool { _, err := os.Stat(dir); return err == nil })
	n.register(t, "b-reg.sock", &scripted{nodeID: "after"})
	n.await(t, "the driver", func() bool { return slices.ContainsFunc(n.registry.Drivers(), isAfter) })
}

func isAfter(line volumesv1alpha1.NodeDriver) bool { return line.NodeID == "after" }

func TestAnEmptyListOfCapabilitiesIsNoCapability(t *testing.T) {
	s := &scripted{capabilities: []csi.NodeServiceCapability_RPC_Type{csi.NodeServiceCapability_RPC_UNKNOWN}}
	line, err := connect(t, s).Describe(t.Context())
	if err != nil || len(line.Capabilities) != 0 {
		t.Errorf("description with an unknown capability: %+v, error %v; want no capabilities", line, err)
	}
}
