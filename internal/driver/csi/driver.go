/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package csi

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/driver"
)

// Driver is one CSI node plugin. Its capabilities are read once, when it is connected.
type Driver struct {
	name     string
	endpoint string
	dial     []grpc.DialOption
	desc     *description
}

var (
	_ driver.Driver      = (*Driver)(nil)
	_ driver.Expander    = (*Driver)(nil)
	_ driver.StatsReader = (*Driver)(nil)
	_ driver.Describer   = (*Driver)(nil)
)

// Connect returns the driver that answers at the unix socket endpoint. It waits for the driver until ctx ends.
// metrics may be nil.
func Connect(ctx context.Context, name, endpoint string, metrics *Metrics) (*Driver, error) {
	d := &Driver{name: name, endpoint: endpoint, dial: metrics.dialOptions(name)}
	desc, err := d.probe(ctx)
	if err != nil {
		return nil, err
	}
	d.desc = desc
	return d, nil
}

// Name of the driver.
func (d *Driver) Name() string { return d.name }

// Describe returns the driver's description from its registration.
func (d *Driver) Describe(context.Context) (volumesv1alpha1.NodeDriver, error) {
	return d.desc.line(d.name), nil
}

func (d *Driver) stages() bool {
	return d.desc.has(csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME)
}

// call makes one RPC and converts its error to a *driver.Error.
func (d *Driver) call(ctx context.Context, r rpc, secrets map[string]string,
	f func(context.Context, *grpc.ClientConn) error) error {
	p, err := call(ctx, d.endpoint, d.dial, f)
	return r.typed(d.name, err, p, secrets)
}

// Stage calls NodeStageVolume, if the driver has STAGE_UNSTAGE_VOLUME. A block volume is staged without mount options.
func (d *Driver) Stage(ctx context.Context, req driver.StageRequest) error {
	if !d.stages() {
		return nil
	}
	request := &csi.NodeStageVolumeRequest{
		VolumeId:          req.Handle,
		PublishContext:    req.PublishContext,
		StagingTargetPath: req.StagingPath,
		VolumeCapability:  d.desc.volumeCapability(req.Volume, req.MountOptions, req.FSGroup),
		Secrets:           req.Secrets,
		VolumeContext:     req.Attributes,
	}
	return d.call(ctx, nodeStage, req.Secrets, func(ctx context.Context, conn *grpc.ClientConn) error {
		_, err := csi.NewNodeClient(conn).NodeStageVolume(ctx, request)
		return err
	})
}

// Publish calls NodePublishVolume.
func (d *Driver) Publish(ctx context.Context, req driver.PublishRequest) error {
	request := &csi.NodePublishVolumeRequest{
		VolumeId:         req.Handle,
		PublishContext:   req.PublishContext,
		TargetPath:       req.TargetPath,
		VolumeCapability: d.desc.volumeCapability(req.Volume, req.MountOptions, req.FSGroup),
		Readonly:         req.ReadOnly,
		Secrets:          req.Secrets,
		VolumeContext:    req.Attributes,
	}
	if d.stages() {
		request.StagingTargetPath = req.StagingPath
	}
	return d.call(ctx, nodePublish, req.Secrets, func(ctx context.Context, conn *grpc.ClientConn) error {
		_, err := csi.NewNodeClient(conn).NodePublishVolume(ctx, request)
		return err
	})
}

// Unpublish calls NodeUnpublishVolume.
func (d *Driver) Unpublish(ctx context.Context, req driver.UnpublishRequest) error {
	request := &csi.NodeUnpublishVolumeRequest{VolumeId: req.Handle, TargetPath: req.TargetPath}
	return d.call(ctx, nodeUnpublish, nil, func(ctx context.Context, conn *grpc.ClientConn) error {
		_, err := csi.NewNodeClient(conn).NodeUnpublishVolume(ctx, request)
		return err
	})
}

// Unstage calls NodeUnstageVolume, if the driver has STAGE_UNSTAGE_VOLUME.
func (d *Driver) Unstage(ctx context.Context, req driver.UnstageRequest) error {
	if !d.stages() {
		return nil
	}
	request := &csi.NodeUnstageVolumeRequest{VolumeId: req.Handle, StagingTargetPath: req.StagingPath}
	return d.call(ctx, nodeUnstage, nil, func(ctx context.Context, conn *grpc.ClientConn) error {
		_, err := csi.NewNodeClient(conn).NodeUnstageVolume(ctx, request)
		return err
	})
}
