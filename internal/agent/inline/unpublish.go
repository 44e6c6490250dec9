/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package inline

import (
	"context"
	"errors"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hawser-io/hawser/internal/mount"
)

// NodeUnpublishVolume undoes the bind of a pod. It asks no API server and succeeds if nothing is there. A directory
// that is not empty stays.
func (p *Plugin) NodeUnpublishVolume(ctx context.Context,
	req *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	target := req.GetTargetPath()
	switch {
	case req.GetVolumeId() == "":
		return nil, invalid("the volume ID is missing")
	case target == "":
		return nil, invalid("the target path is missing")
	}
	if _, ok := p.Paths.PodOfVolume(target); !ok {
		return nil, invalid("the target path %s is not that of a CSI volume of a pod below %s", target, p.Paths.Kubelet)
	}
	unlock, err := p.targets.lock(ctx, target)
	if err != nil {
		return nil, status.FromContextError(err).Err()
	}
	defer unlock()
	switch err := p.unpublish(ctx, target); {
	case errors.Is(err, mount.ErrOccupied):
		return nil, status.Errorf(codes.FailedPrecondition, "%v; nothing in it is deleted", err)
	case err != nil:
		p.Log.Error(err, "the volume of a pod is not unmounted", "target", target)
		return nil, internal(err)
	}
	p.Log.Info("volume taken from a pod", "target", target)
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

func (p *Plugin) unpublish(ctx context.Context, target string) error {
	directory, err := p.isDirectory(target)
	if err != nil {
		return err
	}
	if directory {
		return directories{p}.end(ctx, target)
	}
	return p.undo(ctx, target, false)
}
