/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package iscsi

import (
	"context"
	"fmt"
	"strings"
)

// Server is an iSCSI target in a network namespace of a machine, so that it can fail while the machine's own network
// works. Its initiator is the machine itself, as the node of that name.
type Server struct {
	// Name of the server and of its namespace.
	Name string
	// Number among the machine's servers. Its networks follow from it.
	Number int
	// Paths is how many networks lead to the server, one if it is 0. With more than one, multipathd makes one device of
	// the disks that a volume has then.
	Paths int
	// Node whose machine it is.
	Node string
	// Run runs a script in the machine and returns its output.
	Run func(ctx context.Context, script string) (string, error)
}

const targetPrefix = "iqn.2026-01.io.hawser:"

// firstNetwork is the second number in the addresses of a server's first network. The next has the next number.
const firstNetwork = 79

// networks returns the beginnings of the server's addresses.
func (s *Server) networks() []string {
	var networks []string
	for i := range max(s.Paths, 1) {
		networks = append(networks, fmt.Sprintf("10.%d.%d", firstNetwork+i, s.Number))
	}
	return networks
}

// portals that initiators log in at, separated by commas.
func (s *Server) portals() string { return strings.Join(s.networks(), ".2:3260,") + ".2:3260" }

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
	if [ -e $dir/$1.attached ]; then allow bind $tid; fi
}
allow() { for net in $nets; do admin --op $1 --mode target --tid $2 -I $net.1; done; }
withdraw_volume() { admin --op delete --force --mode target --tid $(cat $dir/$1.tid); }
serve() {
	ip netns exec $name tgtd -C $number
	until admin --op show --mode sys >/dev/null 2>&1; do sleep 0.1; done
	for file in $dir/*.tid; do [ ! -e $file ] || export_volume $(basename $file .tid); done
}
`

// run runs a script that has the server's names in variables, and these functions.
func (s *Server) run(ctx context.Context, script string, args ...any) (string, error) {
	names := fmt.Sprintf("set -e; name=%s number=%d nets='%s' dir=/srv/%[1]s prefix=%[4]s", s.Name, s.Number,
		strings.Join(s.networks(), " "), targetPrefix)
	return s.Run(ctx, names+functions+fmt.Sprintf(script, args...))
}

func (s *Server) do(ctx context.Context, script string, args ...any) error {
	_, err := s.run(ctx, script, args...)
	return err
}

// Create makes networks and server, and starts the machine's initiator, and what makes one device of many disks, unless
// they run.
func (s *Server) Create(ctx context.Context) error {
	start := initiator
	if s.Paths > 1 {
		start += multipath
	}
	return s.do(ctx, "%s", `
ip netns add $name; ip -n $name link set lo up
path=0
for net in $nets; do
	ip link add iscsi$number-$path type veth peer name eth$path netns $name
	ip addr add $net.1/30 dev iscsi$number-$path; ip link set iscsi$number-$path up
	ip -n $name addr add $net.2/30 dev eth$path; ip -n $name link set eth$path up
	path=$((path + 1))
done
mkdir -p $dir
serve
`+start)
}

// initiator starts open-iscsi's daemon.
const initiator = `
modprobe iscsi_tcp; mkdir -p /run/lock/iscsi /etc/iscsi
echo InitiatorName=${prefix}initiator >/etc/iscsi/initiatorname.iscsi
pidof iscsid >/dev/null || iscsid
`

// multipath starts multipathd, which hears of disks from udev. It takes nothing but the disks of tgt. What has no path
// fails at once.
const multipath = `
modprobe dm-multipath
cat >/etc/multipath.conf <<END
defaults {
	find_multipaths no
	polling_interval 2
	max_polling_interval 2
	no_path_retry fail
	fast_io_fail_tmo 5
}
blacklist {
	device {
		vendor ".*"
		product ".*"
	}
}
blacklist_exceptions {
	device {
		vendor "IET"
		product "VIRTUAL-DISK"
	}
}
END
pidof systemd-udevd >/dev/null || /usr/lib/systemd/systemd-udevd --daemon
pidof multipathd >/dev/null || multipathd
until multipathd show daemon; do sleep 0.1; done
`

// Cut takes the network of a path away. The first one has the number 0. The server's connections end with it, because
// otherwise the server keeps them when the initiator has made new ones, and so refuses to detach.
func (s *Server) Cut(ctx context.Context, path int) error {
	return s.do(ctx, "ip link set iscsi$number-%d down; ip netns exec $name ss -K -t dst %s.1 >/dev/null", path,
		s.networks()[path])
}

// Connect ends Cut.
func (s *Server) Connect(ctx context.Context, path int) error {
	return s.do(ctx, "ip link set iscsi$number-%d up", path)
}

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
