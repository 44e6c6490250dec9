/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package csi

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/stats"
)

// dial creates a connection to the unix socket. It connects at the first call.
func dial(socket string, options ...grpc.DialOption) (*grpc.ClientConn, error) {
	options = append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return open(ctx, socket)
		}),
		grpc.WithAuthority("localhost"),
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
	}, options...)
	// The socket's path is not part of the target, because gRPC would parse it as an URL.
	return grpc.NewClient("passthrough:///csi", options...)
}

// longestAddress is what the kernel takes as the address of a socket. A path may be longer: the driver sees it shorter,
// from within its container.
const longestAddress = len(unix.RawSockaddrUnix{}.Path) - 1

// open connects to the socket. Where its path is too long for an address, it connects beneath its open directory.
func open(ctx context.Context, socket string) (net.Conn, error) {
	if len(socket) > longestAddress {
		dir, err := os.Open(filepath.Dir(socket))
		if err != nil {
			return nil, fmt.Errorf("opening the directory of the socket: %w", err)
		}
		defer dir.Close() //nolint:errcheck // only read
		socket = fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(socket))
	}
	if len(socket) > longestAddress {
		return nil, fmt.Errorf("the name of the socket, %s, is too long: no program can connect to it",
			filepath.Base(socket))
	}
	return (&net.Dialer{}).DialContext(ctx, "unix", socket)
}

// call connects to the socket, makes one call with f, and disconnects. It returns how far the call got.
func call(ctx context.Context, socket string, options []grpc.DialOption,
	f func(context.Context, *grpc.ClientConn) error) (progress, error) {
	conn, err := dial(socket, slices.Concat(options, []grpc.DialOption{grpc.WithStatsHandler(wireObserver{})})...)
	if err != nil {
		return progress{}, err
	}
	defer func() { _ = conn.Close() }() // fails only for a closed connection
	seen := &wireEvents{}
	err = f(context.WithValue(ctx, wireEventsKey{}, seen), conn)
	return progress{sent: seen.sent.Load(), answered: seen.answered.Load()}, err
}

// progress is how far a call got.
type progress struct {
	// sent is true if a part of the request left this process. Otherwise the call had no effect.
	sent bool
	// answered is true if the status came from the driver. Otherwise gRPC generated it in this process, for a
	// broken stream or a deadline. The driver may then still run the call.
	answered bool
}

type wireEvents struct{ sent, answered atomic.Bool }

type wireEventsKey struct{}

// wireObserver records in the call's wireEvents what was sent and received.
type wireObserver struct{}

var _ stats.Handler = wireObserver{}

func (wireObserver) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

func (wireObserver) HandleRPC(ctx context.Context, event stats.RPCStats) {
	seen, ok := ctx.Value(wireEventsKey{}).(*wireEvents)
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

func (wireObserver) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

func (wireObserver) HandleConn(context.Context, stats.ConnStats) {}
