/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/hawser-io/hawser/hack/localcluster/internal/pki"
	"github.com/hawser-io/hawser/hack/localcluster/internal/process"
)

// Options of a cluster.
type Options struct {
	Layout Layout
	// Bin is the directory of hack/build-control-plane.sh's results.
	Bin string
	// Self is the launcher's own executable. It simulates the nodes, is the first process of the machines, and restarts
	// the sidecars.
	Self  string
	Nodes []string
	// RealKubelets gives every node a machine with containerd and kubelet, instead of a simulated kubelet.
	RealKubelets bool
	// KubeletDefaults leaves the intervals of the kubelets' reports at their defaults.
	KubeletDefaults bool
	// ContainerProgram is a static program, the only one that the containers of real nodes can run.
	ContainerProgram string
	// Controllers is kube-controller-manager's list of controllers.
	Controllers string
	AuditLog    bool
	// Durable makes etcd sync its writes to the disk.
	Durable bool
	// APIServerArgs and ControllerManagerArgs are added to the programs' default arguments.
	APIServerArgs         []string
	ControllerManagerArgs []string
	// ControllerSockets maps CSI drivers to the sockets of their controllers, for an external-provisioner
	// and an external-resizer each.
	ControllerSockets map[string]string
	// AttacherSocket is the driver that the external-attacher serves, if any.
	AttacherSocket string
	// AttacherArgs are added to its default arguments.
	AttacherArgs []string
	// Manifests are files, directories or kustomizations to apply at the end.
	Manifests []string
	Out       io.Writer
}

// Up starts the cluster. It does not change running processes, so it also repairs a cluster that lost a part.
func Up(ctx context.Context, o Options) error {
	begin := time.Now()
	if err := o.Layout.prepare(o.Nodes); err != nil {
		return err
	}
	ports, err := o.Layout.ports()
	if err != nil {
		return err
	}
	authority, err := certificates(o.Layout, ports, o.Nodes)
	if err != nil {
		return err
	}
	if err := os.WriteFile(o.Layout.auditPolicy(), []byte(auditPolicy), 0o644); err != nil {
		return fmt.Errorf("writing the audit policy: %w", err)
	}
	client, err := Client(o.Layout.AdminKubeconfig())
	if err != nil {
		return err
	}
	for _, step := range o.steps(ports, authority, client) {
		start := time.Now()
		if err := step.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		_, _ = fmt.Fprintf(o.Out, "%-50s %6.1f s\n", step.name, time.Since(start).Seconds()) // progress only
	}
	_, _ = fmt.Fprintf(o.Out, "cluster up in %.1f s\nexport KUBECONFIG=%s\n", time.Since(begin).Seconds(),
		o.Layout.AdminKubeconfig())
	return nil
}

type step struct {
	name string
	run  func(context.Context) error
}

func (o Options) steps(p Ports, a *pki.Authority, client kubernetes.Interface) []step {
	l := o.Layout
	steps := []step{
		{"starting etcd", func(ctx context.Context) error {
			health := fmt.Sprintf("http://127.0.0.1:%d/health", p.EtcdClient)
			return o.start(ctx, etcd, health, etcdArgs(l, p, o.Durable))
		}},
		{"starting kube-apiserver", func(ctx context.Context) error {
			args := append(apiServerArgs(l, p, a, o.AuditLog), o.APIServerArgs...)
			return o.start(ctx, apiServer, p.Server()+"/readyz", args)
		}},
		{"starting kube-controller-manager", func(ctx context.Context) error {
			health := fmt.Sprintf("https://127.0.0.1:%d/healthz", p.ControllerManager)
			args := append(controllerManagerArgs(l, p, a, o.Controllers), o.ControllerManagerArgs...)
			return o.start(ctx, controllerManager, health, args)
		}},
		{"creating accounts and roles", func(ctx context.Context) error {
			return errors.Join(accounts(ctx, client, l, p, a), grant(ctx, client))
		}},
		{fmt.Sprintf("registering %d nodes", len(o.Nodes)), func(ctx context.Context) error {
			if err := o.startNodeParts(); err != nil {
				return err
			}
			if o.RealKubelets {
				if err := o.startRealNodes(ctx, p, a); err != nil {
					return err
				}
			}
			return awaitNodes(ctx, client, o.Nodes)
		}},
		{"creating the agents' credentials", func(ctx context.Context) error {
			for _, node := range o.Nodes {
				if err := agentCredential(ctx, client, l, p, a, node, o.RealKubelets); err != nil {
					return err
				}
			}
			return nil
		}},
	}
	if len(o.ControllerSockets) > 0 {
		steps = append(steps,
			step{"starting csi-provisioner and csi-resizer", func(context.Context) error { return o.startStorage() }})
	}
	if o.AttacherSocket != "" {
		steps = append(steps, step{"starting csi-attacher", func(context.Context) error { return o.StartAttacher() }})
	}
	for _, path := range o.Manifests {
		steps = append(steps, step{"applying " + path, func(ctx context.Context) error { return o.apply(ctx, path) }})
	}
	return steps
}

// Client creates a client from a kubeconfig, without a rate limit.
func Client(kubeconfig string) (*kubernetes.Clientset, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", kubeconfig, err)
	}
	config = rest.CopyConfig(config)
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client of %s: %w", kubeconfig, err)
	}
	return client, nil
}

func (o Options) startNodeParts() error {
	args := []string{"run-node-parts", "--dir", o.Layout.Root}
	if !o.RealKubelets {
		for _, node := range o.Nodes {
			args = append(args, "--node", node)
		}
	}
	return startDetached(o.Layout, process.Spec{Name: nodeParts, Program: o.Self, Args: args})
}

// startDetached starts a program whose readiness shows in the API.
func startDetached(l Layout, spec process.Spec) error {
	spec.Log = l.Log(spec.Name)
	_, err := l.Processes().Start(spec)
	return err
}

// awaitNodes watches until every node is Ready.
func awaitNodes(ctx context.Context, client kubernetes.Interface, nodes []string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	missing := map[string]bool{}
	for _, node := range nodes {
		missing[node] = true
	}
	if len(missing) == 0 {
		return nil
	}
	source := cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "nodes", "", fields.Everything())
	_, err := watchtools.UntilWithSync(ctx, source, &corev1.Node{}, nil, func(event watch.Event) (bool, error) {
		if node, ok := event.Object.(*corev1.Node); ok && event.Type != watch.Deleted && ready(node) {
			delete(missing, node.Name)
		}
		return len(missing) == 0, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for %d nodes to be Ready: %w", len(missing), err)
	}
	return nil
}

func ready(node *corev1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// apply runs kubectl on a file, a directory, or a kustomization.
func (o Options) apply(ctx context.Context, path string) error {
	kubectl, err := o.program("kubectl")
	if err != nil {
		return err
	}
	flag := "-f"
	if _, err := os.Stat(filepath.Join(path, "kustomization.yaml")); err == nil {
		flag = "-k"
	}
	// Server-side, because a large definition does not fit into the annotation of a client-side apply.
	cmd := process.Command(ctx, kubectl, "--kubeconfig", o.Layout.AdminKubeconfig(),
		"apply", "--server-side", "--force-conflicts", "--field-manager=localcluster", flag, path)
	output, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("applying %s: %w\n%s", path, err, output)
	}
	return nil
}
