/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package csiclient connects to CSI drivers over their unix sockets.
package csiclient

import (
	"context"
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
)

// Dial prepares a connection that is made with the first call, and anew when the driver comes
// back. Calls wait for the driver until their deadline, so it may start later than its callers.
func Dial(socket string) (*grpc.ClientConn, error) {
	reconnect := backoff.DefaultConfig
	reconnect.BaseDelay, reconnect.MaxDelay = 50*time.Millisecond, time.Second
	connection, err := grpc.NewClient("unix:"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnect, MinConnectTimeout: time.Second}),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)),
	)
	if err != nil {
		return nil, fmt.Errorf("preparing a connection to %s: %w", socket, err)
	}
	return connection, nil
}

// Controller is a driver's controller side.
type Controller struct {
	csi.ControllerClient
	csi.IdentityClient
}

// NewController makes the clients of a connection.
func NewController(connection grpc.ClientConnInterface) Controller {
	return Controller{csi.NewControllerClient(connection), csi.NewIdentityClient(connection)}
}

// ControllerCan reports whether the driver's controller has the capability.
func (c Controller) ControllerCan(ctx context.Context, want csi.ControllerServiceCapability_RPC_Type) (bool, error) {
	answer, err := c.ControllerGetCapabilities(ctx, &csi.ControllerGetCapabilitiesRequest{})
	if err != nil {
		return false, fmt.Errorf("asking for the controller's capabilities: %w", err)
	}
	for _, capability := range answer.GetCapabilities() {
		if capability.GetRpc().GetType() == want {
			return true, nil
		}
	}
	return false, nil
}

// PluginCan reports whether the driver as a whole has the capability.
func (c Controller) PluginCan(ctx context.Context, want csi.PluginCapability_Service_Type) (bool, error) {
	answer, err := c.GetPluginCapabilities(ctx, &csi.GetPluginCapabilitiesRequest{})
	if err != nil {
		return false, fmt.Errorf("asking for the driver's capabilities: %w", err)
	}
	for _, capability := range answer.GetCapabilities() {
		if capability.GetService().GetType() == want {
			return true, nil
		}
	}
	return false, nil
}
