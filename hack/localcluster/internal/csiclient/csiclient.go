/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package csiclient connects to CSI drivers over their unix sockets.
package csiclient

import (
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
)

// Dial prepares a connection. It connects with the first call, and again when the driver returns. Calls wait for the
// driver until their deadline, so it may start later than its callers.
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
