/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attach

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/hawser-io/hawser/test/bench/attach/cluster"
	"github.com/hawser-io/hawser/test/system"
)

// managerAccount is the service account of system.ManagerUser.
const managerAccount = "hawser-manager"

// contender attaches and detaches the volumes of the wishes.
type contender struct {
	name string
	// user of its requests.
	user string
	// hawser is true if it uses Hawser's kinds, under its admission policies.
	hawser bool
	// limited is true if its own limits bound it, not the machine.
	limited bool
	wish    wish
	// enter starts it and returns how to stop it. The PID is that of the process that does the work.
	enter func(ctx context.Context, a *arena) (pid int, leave func(), err error)
}

// all contenders in the order of measurement.
func (b *bench) all() []contender {
	return []contender{
		{"upstream", system.UpstreamUser, false, true, podWish, b.upstream("upstream")},
		{"upstream-lifted", system.UpstreamUser, false, false, podWish,
			b.upstream("upstream-lifted", "--kube-api-qps=100000", "--kube-api-burst=100000")},
		{"bare-intents", system.ManagerUser, true, false, intentWish, b.bare("bare-intents")},
		{"hawser-intents", system.ManagerUser, true, false, intentWish, b.hawser("hawser-intents", "--attach-mode=Coexist")},
		{"bare-pods", system.ManagerUser, true, false, podWish, b.bare("bare-pods")},
		{"hawser-pods", system.ManagerUser, true, false, podWish, b.hawser("hawser-pods", "--attach-mode=Replace")},
	}
}

// upstream's controller, alone in the real kube-controller-manager.
func (b *bench) upstream(log string, args ...string) func(context.Context, *arena) (int, func(), error) {
	return func(ctx context.Context, _ *arena) (int, func(), error) {
		kubeconfig, err := b.cluster.Kubeconfig("kube-controller-manager", "system:kube-controller-manager")
		if err != nil {
			return 0, nil, err
		}
		p, err := b.start(ctx, log, cluster.Program("kube-controller-manager"), append([]string{
			"--kubeconfig=" + kubeconfig, "--controllers=persistentvolume-attach-detach-controller",
			"--use-service-account-credentials=true", "--leader-elect=false", "--secure-port=0",
		}, args...)...)
		if err != nil {
			return 0, nil, err
		}
		return p.PID, p.Stop, nil
	}
}

// hawser's manager.
func (b *bench) hawser(log string, args ...string) func(context.Context, *arena) (int, func(), error) {
	return func(ctx context.Context, _ *arena) (int, func(), error) {
		kubeconfig, err := b.cluster.ServiceAccountKubeconfig(ctx, "manager", managerAccount)
		if err != nil {
			return 0, nil, err
		}
		args := append([]string{
			"--kubeconfig=" + kubeconfig, "--leader-elect=false", "--metrics-bind-address=0", "--health-probe-bind-address=0",
		}, args...)
		if b.profile > 0 {
			args = append(args, "--pprof-bind-address="+pprofAddress)
		}
		p, err := b.start(ctx, log, b.managerProgram, append(args, strings.Fields(b.managerArgs)...)...)
		if err != nil {
			return 0, nil, err
		}
		return p.PID, p.Stop, nil
	}
}

// bare client, which runs in another process of this program.
func (b *bench) bare(part string) func(context.Context, *arena) (int, func(), error) {
	return func(ctx context.Context, _ *arena) (int, func(), error) {
		kubeconfig, err := b.cluster.ServiceAccountKubeconfig(ctx, "manager", managerAccount)
		if err != nil {
			return 0, nil, err
		}
		file := filepath.Join(b.cluster.Dir(), "stage.json")
		if err := b.stage.Write(file); err != nil {
			return 0, nil, err
		}
		program, err := os.Executable()
		if err != nil {
			return 0, nil, fmt.Errorf("finding this program: %w", err)
		}
		p, err := b.start(ctx, part, program, "--part="+part, "--kubeconfig="+kubeconfig, "--stage="+file)
		if err != nil {
			return 0, nil, err
		}
		return p.PID, p.Stop, nil
	}
}
