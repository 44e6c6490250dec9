/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package verify

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// timeout bounds all the calls of one verification.
const timeout = 2 * time.Minute

// pageSize asks for so many volumes at a time. A driver may give fewer.
const pageSize = 1000

// errIncapable: the driver cannot say to which nodes its volumes are published.
var errIncapable = errors.New(
	"it cannot list the nodes to which its volumes are published (LIST_VOLUMES_PUBLISHED_NODES)",
)

// listing says of each volume, by handle, to which nodes the driver has it published. A volume that it says nothing
// of is not there.
type listing map[string][]string

// plugin is a driver's controller service.
type plugin struct{ name, socket string }

// connect makes a connection of one verification's own: one that lasts would try a driver that was away again only
// after minutes.
func (p plugin) connect() (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///csi",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", p.socket)
		}),
		grpc.WithAuthority("localhost"), grpc.WithNoProxy(), grpc.WithDisableServiceConfig(),
	)
}

// list asks the driver, which must be the one that was named: another one's volumes would all seem to be gone.
func (p plugin) list(ctx context.Context) (listing, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := p.connect()
	if err != nil {
		return nil, fmt.Errorf("connecting to it: %w", err)
	}
	defer func() { _ = conn.Close() }() // fails only for a connection that is closed already
	info, err := csi.NewIdentityClient(conn).GetPluginInfo(ctx, &csi.GetPluginInfoRequest{})
	switch {
	case err != nil:
		return nil, fmt.Errorf("asking for its name: %w", err)
	case info.GetName() != p.name:
		return nil, fmt.Errorf("the driver at its endpoint is %s", info.GetName())
	}
	controller := csi.NewControllerClient(conn)
	capabilities, err := controller.ControllerGetCapabilities(ctx, &csi.ControllerGetCapabilitiesRequest{})
	if err != nil {
		return nil, fmt.Errorf("asking what it can do: %w", err)
	}
	for _, needed := range []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_LIST_VOLUMES, csi.ControllerServiceCapability_RPC_LIST_VOLUMES_PUBLISHED_NODES,
	} {
		if !slices.ContainsFunc(capabilities.GetCapabilities(), func(c *csi.ControllerServiceCapability) bool {
			return c.GetRpc().GetType() == needed
		}) {
			return nil, errIncapable
		}
	}
	return pages(ctx, controller)
}

// pages lists page after page.
func pages(ctx context.Context, controller csi.ControllerClient) (listing, error) {
	volumes, seen := listing{}, map[string]bool{}
	for token := ""; ; {
		page, err := controller.ListVolumes(ctx, &csi.ListVolumesRequest{StartingToken: token, MaxEntries: pageSize})
		if err != nil {
			return nil, fmt.Errorf("listing its volumes: %w", err)
		}
		for _, e := range page.GetEntries() {
			if e.GetStatus() != nil {
				handle := e.GetVolume().GetVolumeId()
				volumes[handle] = append(volumes[handle], e.GetStatus().GetPublishedNodeIds()...)
			}
		}
		if token = page.GetNextToken(); token == "" {
			return volumes, nil
		}
		if seen[token] {
			return nil, fmt.Errorf("listing its volumes: page %q came twice", token)
		}
		seen[token] = true
	}
}
