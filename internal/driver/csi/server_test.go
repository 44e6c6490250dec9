/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package csi

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

const (
	driverName  = "scripted.csi.test"
	waitTimeout = 10 * time.Second
)

func await[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(waitTimeout):
		t.Fatalf("%s did not come within %s, want it", what, waitTimeout)
		panic("unreachable")
	}
}

// shortDir is a directory whose socket paths fit into a socket address.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "csi")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// scripted is a node plugin that answers as scripted and records its requests.
type scripted struct {
	csi.UnimplementedNodeServer
	registerapi.UnimplementedRegistrationServer

	mu           sync.Mutex
	info         *registerapi.PluginInfo
	capabilities []csi.NodeServiceCapability_RPC_Type
	nodeID       string
	maxVolumes   int64
	// refusal of NodeGetInfo, if any.
	refusal error
	// answer is the result of every call that is not part of the registration; nil is success.
	answer   func(context.Context, proto.Message) error
	stats    *csi.NodeGetVolumeStatsResponse
	health   *csi.NodeGetVolumeHealthResponse
	storage  *csi.NodeGetStorageHealthResponse
	expanded int64
	requests []proto.Message
}

func (s *scripted) asked(ctx context.Context, request proto.Message) error {
	s.mu.Lock()
	s.requests = append(s.requests, request)
	answer := s.answer
	s.mu.Unlock()
	if answer == nil {
		return nil
	}
	return answer(ctx, request)
}

func (s *scripted) script(answer func(context.Context, proto.Message) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer, s.requests = answer, nil
}

func (s *scripted) received() []proto.Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests
}

func (s *scripted) GetInfo(context.Context, *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	return s.info, nil
}

func (s *scripted) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &csi.NodeGetInfoResponse{NodeId: s.nodeID, MaxVolumesPerNode: s.maxVolumes}, s.refusal
}

func (s *scripted) NodeGetCapabilities(context.Context,
	*csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	answer := &csi.NodeGetCapabilitiesResponse{}
	for _, c := range s.capabilities {
		answer.Capabilities = append(answer.Capabilities, &csi.NodeServiceCapability{
			Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: c}},
		})
	}
	return answer, nil
}

func (s *scripted) NodeStageVolume(ctx context.Context,
	r *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	return &csi.NodeStageVolumeResponse{}, s.asked(ctx, r)
}

func (s *scripted) NodeUnstageVolume(ctx context.Context,
	r *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	return &csi.NodeUnstageVolumeResponse{}, s.asked(ctx, r)
}

func (s *scripted) NodePublishVolume(ctx context.Context,
	r *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	return &csi.NodePublishVolumeResponse{}, s.asked(ctx, r)
}

func (s *scripted) NodeUnpublishVolume(ctx context.Context,
	r *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	return &csi.NodeUnpublishVolumeResponse{}, s.asked(ctx, r)
}

func (s *scripted) NodeExpandVolume(ctx context.Context,
	r *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	return &csi.NodeExpandVolumeResponse{CapacityBytes: s.expanded}, s.asked(ctx, r)
}

func (s *scripted) NodeGetVolumeStats(ctx context.Context,
	r *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	return s.stats, s.asked(ctx, r)
}

func (s *scripted) NodeGetVolumeHealth(ctx context.Context,
	r *csi.NodeGetVolumeHealthRequest) (*csi.NodeGetVolumeHealthResponse, error) {
	return s.health, s.asked(ctx, r)
}

func (s *scripted) NodeGetStorageHealth(ctx context.Context,
	r *csi.NodeGetStorageHealthRequest) (*csi.NodeGetStorageHealthResponse, error) {
	return s.storage, s.asked(ctx, r)
}

// serve answers at the socket until stop is called, which removes the socket.
func (s *scripted) serve(t *testing.T, socket string) (stop func()) {
	t.Helper()
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	csi.RegisterNodeServer(server, s)
	registerapi.RegisterRegistrationServer(server, s)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	stop = sync.OnceFunc(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func allCapabilities() []csi.NodeServiceCapability_RPC_Type {
	return []csi.NodeServiceCapability_RPC_Type{
		csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME,
		csi.NodeServiceCapability_RPC_GET_VOLUME_STATS,
		csi.NodeServiceCapability_RPC_EXPAND_VOLUME,
		csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
		csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP,
	}
}

// connect serves s and returns a client of it.
func connect(t *testing.T, s *scripted) *Driver {
	t.Helper()
	socket := filepath.Join(shortDir(t), "csi.sock")
	s.serve(t, socket)
	d, err := Connect(t.Context(), driverName, socket, nil)
	if err != nil {
		t.Fatal(err)
	}
	return d
}
