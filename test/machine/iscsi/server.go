/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package iscsi

import (
	"context"
	"fmt"
)

// Server is an iSCSI target in a network namespace of a machine, so that it can fail while the machine's own network
// works. Its initiator is the machine itself, as the node of that name.
type Server struct {
	// Name of the server and of its namespace.
	Name string
	// Number among the machine's servers. Its network follows from it.
	Number int
	// Node whose machine it is.
	Node string
	// Run runs a script in the machine and returns its output.
	Run func(ctx context.Context, script string) (string, error)
}

const targetPrefix = "iqn.2026-01.io.hawser:"

// portal that initiators log in at.
func (s *Server) portal() string { return fmt.Sprintf("10.79.%d.2:3260", s.Number) }

// target of a volume.
func target(volume string) string { return targetPrefix + volume }

// functions of scripts. A server forgets its targets when it ends, so each volume has files: its content (img), the
// number of its target (tid), and how it is attached, while it is (attached).
const functions = `
admin() { tgtadm -C $number --lld iscsi "$@"; }
export_volume() {
	tid=$(cat $dir/$1.tid)
	admin --op new --mode target --tid $tid -T $prefix$name.$1
	admin --op new --mode logicalunit --tid $tid --lun 1 -b $dir/$1.img
	if [ -e $dir/$1.attached ]; then admin --op bind --mode target --tid $tid -I $net.1; fi
}
withdraw_volume() { admin --op delete --force --mode target --tid $(cat $dir/$1.tid); }
serve() {
	ip netns exec $name tgtd -C $number --iscsi portal=$net.2:3260
	until admin --op show --mode sys >/dev/null 2>&1; do sleep 0.1; done
	for file in $dir/*.tid; do [ ! -e $file ] || export_volume $(basename $file .tid); done
}
`

// run runs a script that has the server's names in variables, and these functions.
func (s *Server) run(ctx context.Context, script string, args ...any) (string, error) {
	names := fmt.Sprintf("set -e; name=%s number=%d net=10.79.%[2]d dir=/srv/%[1]s prefix=%[3]s", s.Name, s.Number,
		targetPrefix)
	return s.Run(ctx, names+functions+fmt.Sprintf(script, args...))
}

func (s *Server) do(ctx context.Context, script string, args ...any) error {
	_, err := s.run(ctx, script, args...)
	return err
}

// Create makes network and server, and starts the machine's initiator unless it runs.
func (s *Server) Create(ctx context.Context) error {
	return s.do(ctx, `
ip netns add $name
ip link add iscsi$number type veth peer name eth0 netns $name
ip addr add $net.1/30 dev iscsi$number; ip link set iscsi$number up
ip -n $name addr add $net.2/30 dev eth0; ip -n $name link set eth0 up; ip -n $name link set lo up
mkdir -p $dir
serve
`+initiator)
}

// initiator starts open-iscsi's daemon.
const initiator = `
modprobe iscsi_tcp; mkdir -p /run/lock/iscsi /etc/iscsi
echo InitiatorName=${prefix}initiator >/etc/iscsi/initiatorname.iscsi
pidof iscsid >/dev/null || iscsid
`

// Stop ends the server: its target is lost, and its initiators get no connection.
func (s *Server) Stop(ctx context.Context) error {
	return s.do(ctx, `pid=$(ip netns pids $name); kill -9 $pid
for p in $pid; do while [ -e /proc/$p ]; do sleep 0.05; done; done`)
}

// Continue starts a server that was stopped.
func (s *Server) Continue(ctx context.Context) error { return s.do(ctx, "serve") }

// Withdraw takes away the target of a volume, with its connections.
func (s *Server) Withdraw(ctx context.Context, volume string) error {
	return s.do(ctx, "withdraw_volume %s", nameOf(volume))
}

// Restore ends Withdraw.
func (s *Server) Restore(ctx context.Context, volume string) error {
	return s.do(ctx, "export_volume %s", nameOf(volume))
}
