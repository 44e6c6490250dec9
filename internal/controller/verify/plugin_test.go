/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package verify

import (
	"context"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
)

// fakeServer is a driver that lists pages of one volume each.
type fakeServer struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer
	name      string
	incapable bool
	// endless: the last page names itself as the next.
	endless bool
	volumes []*csi.ListVolumesResponse_Entry
}

func (f *fakeServer) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: f.name}, nil
}

func (f *fakeServer) ControllerGetCapabilities(
	context.Context, *csi.ControllerGetCapabilitiesRequest,
) (*csi.ControllerGetCapabilitiesResponse, error) {
	kinds := []csi.ControllerServiceCapability_RPC_Type{csi.ControllerServiceCapability_RPC_LIST_VOLUMES}
	if !f.incapable {
		kinds = append(kinds, csi.ControllerServiceCapability_RPC_LIST_VOLUMES_PUBLISHED_NODES)
	}
	answer := &csi.ControllerGetCapabilitiesResponse{}
	for _, k := range kinds {
		answer.Capabilities = append(answer.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: k}},
		})
	}
	return answer, nil
}

func (f *fakeServer) ListVolumes(_ context.Context, request *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
	at := 0
	if token := request.GetStartingToken(); token != "" {
		var err error
		if at, err = strconv.Atoi(token); err != nil {
			return nil, err
		}
	}
	answer := &csi.ListVolumesResponse{Entries: f.volumes[at : at+1]}
	switch {
	case at+1 < len(f.volumes):
		answer.NextToken = strconv.Itoa(at + 1)
	case f.endless:
		answer.NextToken = strconv.Itoa(at)
	}
	return answer, nil
}

func volumeOn(handle string, nodes ...string) *csi.ListVolumesResponse_Entry {
	return &csi.ListVolumesResponse_Entry{
		Volume: &csi.Volume{VolumeId: handle}, Status: &csi.ListVolumesResponse_VolumeStatus{PublishedNodeIds: nodes},
	}
}

// serve runs f and returns its socket.
func serve(t *testing.T, f *fakeServer) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "csi.sock")
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	csi.RegisterIdentityServer(server, f)
	csi.RegisterControllerServer(server, f)
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return socket
}

func TestEveryPageOfADriversListIsRead(t *testing.T) {
	silent := volumeOn("silent")
	silent.Status = nil
	f := &fakeServer{name: "d",
		volumes: []*csi.ListVolumesResponse_Entry{volumeOn("h1", "a", "b"), volumeOn("h2"), silent, volumeOn("h4", "a")}}
	got, err := plugin{name: "d", socket: serve(t, f)}.list(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 3 || strings.Join(got["h1"], " ") != "a b" || len(got["h2"]) != 0 ||
		strings.Join(got["h4"], " ") != "a" {
		t.Errorf("listing: %v, want h1 on a and b, h2 on none, h4 on a", got)
	}
	if _, listed := got["h2"]; !listed {
		t.Errorf("listing: %v, want h2, which is published nowhere", got)
	}
	if _, listed := got["silent"]; listed {
		t.Errorf("listing: %v, want no volume silent, which has no status", got)
	}
}

func TestADriverThatCannotBeBelievedIsNotListened(t *testing.T) {
	volumes := []*csi.ListVolumesResponse_Entry{volumeOn("h1")}
	for _, c := range []struct {
		name   string
		driver *fakeServer
		want   string
	}{
		{"another driver at the endpoint", &fakeServer{name: "other", volumes: volumes},
			"the driver at its endpoint is other"},
		{"without the capability", &fakeServer{name: "d", incapable: true, volumes: volumes}, "LIST_VOLUMES_PUBLISHED_NODES"},
		{"pages that go round in a circle", &fakeServer{name: "d", endless: true, volumes: volumes}, "came twice"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := plugin{name: "d", socket: serve(t, c.driver)}.list(t.Context())
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("listing of %s: %v, error %v; want an error with %q", c.name, got, err, c.want)
			}
		})
	}
	if _, err := (plugin{name: "d", socket: filepath.Join(t.TempDir(), "nobody.sock")}).list(t.Context()); err == nil {
		t.Error("listing of a driver that does not answer: no error, want one")
	}
}
