/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package cluster

import (
	"errors"

	"github.com/hawser-io/hawser/hack/localcluster/internal/process"
)

// sidecar is a program of the Kubernetes project that serves one CSI driver.
type sidecar struct {
	// name of the process.
	name string
	// program is also the name of its service account.
	program string
	socket  string
	args    []string
}

// StartAttacher runs the external-attacher.
func (o Options) StartAttacher() error {
	return o.startSidecar(sidecar{
		name: AttacherAccount, program: AttacherAccount, socket: o.AttacherSocket,
		args: append([]string{"--worker-threads=64"}, o.AttacherArgs...),
	})
}

// startStorage runs the external-provisioner and the external-resizer of each driver. The driver may start later.
func (o Options) startStorage() error {
	var errs []error
	for driver, socket := range o.ControllerSockets {
		// Retries start soon and stay frequent, because their conditions change within milliseconds here.
		args := []string{"--retry-interval-start=100ms", "--retry-interval-max=5s", "--timeout=60s"}
		errs = append(errs,
			o.startSidecar(sidecar{
				name: provisionerName(driver), program: ProvisionerAccount, socket: socket,
				args: append([]string{"--default-fstype=ext4"}, args...),
			}),
			o.startSidecar(sidecar{name: resizerName(driver), program: ResizerAccount, socket: socket, args: args}),
		)
	}
	return errors.Join(errs...)
}

// startSidecar runs a sidecar as its own user, without a rate limit that a test could reach. It ends when its driver
// ends, so the launcher restarts it, like a kubelet would.
func (o Options) startSidecar(s sidecar) error {
	program, err := o.program(s.program)
	if err != nil {
		return err
	}
	return startDetached(o.Layout, process.Spec{
		Name: s.name, Program: o.Self,
		Args: append([]string{
			"keep-running", "--", program,
			"--csi-address=" + s.socket,
			"--kubeconfig=" + o.Layout.Kubeconfig(s.program),
			"--kube-api-qps=1000",
			"--kube-api-burst=2000",
		}, s.args...),
	})
}

func provisionerName(driver string) string { return ProvisionerAccount + "-" + driver }
func resizerName(driver string) string     { return ResizerAccount + "-" + driver }
