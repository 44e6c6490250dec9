/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package csi

import (
	"context"
	"net"
	"slices"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/stats"
)

// dial makes a connection to the unix socket that connects with its first call.
func dial(socket string, options ...grpc.DialOption) (*grpc.ClientConn, error) {
	options = append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}),
		grpc.WithAuthority("localhost"),
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
	}, options...)
	// The socket's path is kept out of the target, which would be parsed as an URL.
	return grpc.NewClient("passthrough:///csi", options...)
}

// call connects to socket, lets f make one call, and disconnects. It tells how far the call came.
func call(ctx context.Context, socket string, options []grpc.DialOption, f func(context.Context, *grpc.ClientConn) error) (progress, error) {
	conn, err := dial(socket, slices.Concat(options, []grpc.DialOption{grpc.WithStatsHandler(witness{})})...)
	if err != nil {
		return progress{}, err
	}
	defer func() { _ = conn.Close() }() // fails only for a connection that is closed already
	seen := &sighting{}
	err = f(context.WithValue(ctx, sightingKey{}, seen), conn)
	return progress{sent: seen.sent.Load(), answered: seen.answered.Load()}, err
}

// progress is how far a call came.
type progress struct {
	// sent: something of the request left this process. If not, nothing can have happened.
	sent bool
	// answered: the status is the driver's own word. If not, gRPC made it up on this side (a broken
	// stream, a deadline), and the driver may still be at work.
	answered bool
}

type sighting struct{ sent, answered atomic.Bool }

type sightingKey struct{}

// witness notes in the call's sighting what crosses the wire.
type witness struct{}

var _ stats.Handler = witness{}

func (witness) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

func (witness) HandleRPC(ctx context.Context, event stats.RPCStats) {
	seen, ok := ctx.Value(sightingKey{}).(*sighting)
	if !ok {
		return
	}
	switch event.(type) {
	case *stats.OutHeader:
		seen.sent.Store(true)
	case *stats.InTrailer:
		seen.answered.Store(true)
	}
}

func (witness) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

func (witness) HandleConn(context.Context, stats.ConnStats) {}
