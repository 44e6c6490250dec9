/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package nfs

import (
	"context"
	"fmt"
	"path"
)

// Server is an NFS server of the kernel in a network namespace of a machine, so that it can fail while the machine's
// own network works. Its clients are the machine itself.
type Server struct {
	// Name of the server and of its namespace.
	Name string
	// Number among the machine's servers. Its network follows from it.
	Number int
	// Run runs a script in the machine and returns its output.
	Run func(ctx context.Context, script string) (string, error)
}

// Address that clients mount from.
func (s *Server) Address() string { return fmt.Sprintf("10.78.%d.2", s.Number) }

// Export is the directory that the server exports.
func (s *Server) Export() string { return path.Join("/srv", s.Name) }

func (s *Server) directory(volume string) string { return path.Join(s.Export(), volume) }

// sizes has a file of each volume with its size.
func (s *Server) sizes() string { return path.Join("/srv", s.Name+".sizes") }

// run runs a script that has the server's names in variables. Commands of "inside" run in its namespace, where the
// kernel shows what is the server's own.
func (s *Server) run(ctx context.Context, script string) error {
	_, err := s.Run(ctx, fmt.Sprintf("set -e; name=%s number=%d net=10.78.%[2]d export=%s sizes=%s\n", s.Name, s.Number,
		s.Export(), s.sizes())+`inside() { ip netns exec $name sh -ec "mount -t nfsd nfsd /proc/fs/nfsd; $*"; }`+"\n"+script)
	return err
}

// serve starts threads of the server. The lease is short, and so is the time in which a server that has started again
// waits for its old clients.
const serve = "inside 'echo 10 >/proc/fs/nfsd/nfsv4leasetime; echo 10 >/proc/fs/nfsd/nfsv4gracetime; " +
	"rpc.nfsd -N 3 -V 4.2 2'"

// Create makes network, export and server.
func (s *Server) Create(ctx context.Context) error {
	return s.run(ctx, `modprobe nfsd
ip netns add $name
ip link add nfs$number type veth peer name eth0 netns $name
ip addr add $net.1/30 dev nfs$number; ip link set nfs$number up
ip -n $name addr add $net.2/30 dev eth0; ip -n $name link set eth0 up; ip -n $name link set lo up
mkdir -p $export $sizes
exportfs -o rw,no_root_squash,no_subtree_check,insecure,fsid=$number "*:$export"
inside 'rpc.mountd -N 2 -N 3'
`+serve)
}

// Stop stops the server: its clients get no connection.
func (s *Server) Stop(ctx context.Context) error { return s.run(ctx, "inside 'rpc.nfsd 0'") }

// Continue starts a server that was stopped.
func (s *Server) Continue(ctx context.Context) error { return s.run(ctx, serve) }

// Cut cuts the server's network: whatever it sends is lost.
func (s *Server) Cut(ctx context.Context) error {
	return s.run(ctx, "ip -n $name route add blackhole $net.1/32")
}

// Connect ends Cut.
func (s *Server) Connect(ctx context.Context) error {
	return s.run(ctx, "ip -n $name route del blackhole $net.1/32")
}
