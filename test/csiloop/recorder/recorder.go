/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package recorder wraps the calls of a CSI driver: it writes the ledger, separates the calls for one volume, and
// applies the faults that tests command.
package recorder

import (
	"context"
	"os"
	"path"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hawser-io/hawser/test/csiloop/faults"
	"github.com/hawser-io/hawser/test/csiloop/ledger"
)

// changing calls of one volume exclude each other.
var changing = map[string]bool{
	"CreateVolume": true, "DeleteVolume": true, "ControllerPublishVolume": true, "ControllerUnpublishVolume": true,
	"ControllerExpandVolume": true, "NodeStageVolume": true, "NodeUnstageVolume": true, "NodePublishVolume": true,
	"NodeUnpublishVolume": true, "NodeExpandVolume": true,
}

// Recorder wraps every call of one process.
type Recorder struct {
	backingDir string
	mode       string
	node       string

	mu   sync.Mutex
	busy map[string]string
}

// New returns the Recorder of a process that serves the mode, and the node if it is not empty. The backing directory
// has the ledger and the faults.
func New(backingDir, mode, node string) *Recorder {
	return &Recorder{backingDir: backingDir, mode: mode, node: node, busy: map[string]string{}}
}

// Intercept is a grpc.UnaryServerInterceptor.
func (r *Recorder) Intercept(ctx context.Context, request any, info *grpc.UnaryServerInfo,
	handler grpc.UnaryHandler) (any, error) {
	entry := r.describe(request, info.FullMethod)
	started, err := ledger.Append(r.backingDir, entry)
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	answer, err := r.exclusively(started, func() (any, error) {
		return r.work(ctx, started, request, handler)
	})
	if created, ok := answer.(*csi.CreateVolumeResponse); ok {
		started.Volume = created.GetVolume().GetVolumeId()
	}
	if noteErr := r.note(started, ledger.End, err); noteErr != nil {
		return nil, status.Error(codes.Internal, noteErr.Error())
	}
	return answer, err
}

// work runs the call with its faults and records its effect.
func (r *Recorder) work(ctx context.Context, entry ledger.Entry, request any, handler grpc.UnaryHandler) (any, error) {
	target := faults.Target{Method: entry.Method, Volume: entry.Volume, Node: entry.Node}
	return faults.Do(ctx, r.backingDir, target, func(ctx context.Context) (any, error) {
		answer, err := handler(ctx, request)
		if err != nil {
			err = asStatus(ctx, err)
		}
		if noteErr := r.note(entry, ledger.Effect, err); noteErr != nil {
			return nil, status.Error(codes.Internal, noteErr.Error())
		}
		return answer, err
	})
}

// asStatus reports Canceled if the caller gave up, and Internal for every error without a code.
func asStatus(ctx context.Context, err error) error {
	if _, ok := status.FromError(err); ok {
		return err
	}
	if ctx.Err() != nil {
		return status.Errorf(status.FromContextError(ctx.Err()).Code(), "%v", err)
	}
	return status.Error(codes.Internal, err.Error())
}

func (r *Recorder) note(entry ledger.Entry, phase ledger.Phase, err error) error {
	entry.Phase, entry.Code, entry.Message = phase, status.Code(err).String(), ""
	if err != nil {
		entry.Message = status.Convert(err).Message()
	}
	_, appendErr := ledger.Append(r.backingDir, entry)
	return appendErr
}

// exclusively refuses a changing call for a volume while another call changes it, as the CSI specification asks.
func (r *Recorder) exclusively(entry ledger.Entry, do func() (any, error)) (any, error) {
	if !changing[entry.Method] || entry.Volume == "" {
		return do()
	}
	key := entry.Volume
	if path.Base(entry.Method)[0] == 'N' {
		key = "node/" + key // in mode all, each service has its own locks
	}
	r.mu.Lock()
	other, taken := r.busy[key]
	if !taken {
		r.busy[key] = entry.Method
	}
	r.mu.Unlock()
	if taken {
		return nil, status.Errorf(codes.Aborted, "%s of volume %q is still running", other, entry.Volume)
	}
	defer func() {
		r.mu.Lock()
		delete(r.busy, key)
		r.mu.Unlock()
	}()
	return do()
}

// describe reads the fields for ledger and faults from the request.
func (r *Recorder) describe(request any, fullMethod string) ledger.Entry {
	entry := ledger.Entry{
		Phase: ledger.Start, Process: os.Getpid(), Mode: r.mode, Method: path.Base(fullMethod), Node: r.node,
	}
	if path.Dir(fullMethod) == "/csi.v1.Controller" {
		entry.Node = ""
	}
	if q, ok := request.(interface{ GetNodeId() string }); ok {
		entry.Node = q.GetNodeId()
	}
	if q, ok := request.(interface{ GetName() string }); ok {
		entry.Volume = q.GetName()
	}
	if q, ok := request.(interface{ GetVolumeId() string }); ok {
		entry.Volume = q.GetVolumeId()
	}
	if q, ok := request.(interface{ GetStagingTargetPath() string }); ok {
		entry.StagingPath = q.GetStagingTargetPath()
	}
	if q, ok := request.(interface{ GetTargetPath() string }); ok {
		entry.TargetPath = q.GetTargetPath()
	}
	if q, ok := request.(interface{ GetVolumePath() string }); ok {
		entry.TargetPath = q.GetVolumePath()
	}
	if q, ok := request.(interface{ GetReadonly() bool }); ok {
		entry.ReadOnly = q.GetReadonly()
	}
	if q, ok := request.(interface {
		GetVolumeCapability() *csi.VolumeCapability
	}); ok && q.GetVolumeCapability() != nil {
		entry.AccessMode = q.GetVolumeCapability().GetAccessMode().GetMode().String()
		entry.Block = q.GetVolumeCapability().GetBlock() != nil
	}
	return entry
}
