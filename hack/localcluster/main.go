/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Command localcluster runs a Kubernetes cluster on one machine: a real control plane, and nodes. It simulates their
// kubelets, as far as volumes need them, or runs real ones.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hawser-io/hawser/hack/localcluster/internal/cluster"
	"github.com/hawser-io/hawser/hack/localcluster/internal/machine"
	"github.com/hawser-io/hawser/hack/localcluster/internal/process"
)

const usage = `localcluster runs a Kubernetes cluster on one machine, below one directory.

  localcluster up      --dir DIR --nodes 2 [flags]   bring it up, or repair it; prints the KUBECONFIG
  localcluster down    --dir DIR [--purge]           stop it, and delete its directory
  localcluster discard --dir DIR                     stop it, unmount what is mounted below DIR, detach
                                                     its loop devices, and delete DIR
  localcluster status  --dir DIR                     list what runs; fails when something does not
  localcluster stop    --dir DIR NAME                stop etcd, kube-apiserver, kube-controller-manager,
                                                     node-parts, csi-attacher, csi-provisioner-DRIVER,
                                                     csi-resizer-DRIVER, or what "run" started;
                                                     kubelet-NODE, containerd-NODE, machine-NODE
  localcluster start   --dir DIR NAME                start it again as it was
  localcluster run     --dir DIR --name NAME [--node NODE] -- PROGRAM [ARGUMENT ...]
                                                     start a program that down stops; with --node
                                                     inside the machine of a node with a real kubelet
  localcluster attacher --dir DIR --socket PATH [flags]
                                                     start csi-attacher for a driver
  localcluster backup  --dir DIR FILE                take a snapshot of etcd
  localcluster restore --dir DIR [--bump-revision N] FILE
                                                     stop all but guests, restore etcd, start them again
  localcluster silence --dir DIR NODE                stop a node's heartbeats
  localcluster wake    --dir DIR NODE                take them up again

"localcluster COMMAND --help" lists a command's flags.
`

type command func(ctx context.Context, flags *pflag.FlagSet, args []string) error

var commands = map[string]command{
	"up":       up,
	"down":     down,
	"discard":  discard,
	"status":   status,
	"stop":     stop,
	"start":    start,
	"run":      runGuest,
	"attacher": startAttacher,
	"backup":   backup,
	"restore":  restore,
	"silence":  silence,
	"wake":     wake,
	// The launcher starts itself with these commands.
	"run-node-parts": runNodeParts,
	"run-machine":    runMachine,
	"keep-running":   keepRunning,
}

// A machine is created on the program's main thread, which only an init function can lock.
func init() {
	if len(os.Args) > 1 && os.Args[1] == "run-machine" {
		machine.LockMainThread()
	}
}

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	cancel()
	if errors.Is(err, pflag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "localcluster:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 || commands[args[0]] == nil {
		fmt.Fprint(os.Stderr, usage)
		return errors.New("which command?")
	}
	return commands[args[0]](ctx, pflag.NewFlagSet(args[0], pflag.ContinueOnError), args[1:])
}

func up(ctx context.Context, flags *pflag.FlagSet, args []string) error {
	options := cluster.Options{Out: os.Stdout}
	dir := flags.String("dir", "", "directory of the cluster")
	nodes := flags.String("nodes", "2", "names of the nodes, separated by commas, or how many (node-a, node-b, ...)")
	attachDetach := flags.Bool("attach-detach", true, "run upstream's attach/detach controller")
	sockets := flags.StringArray("controller-socket", nil,
		"DRIVER=PATH: run csi-provisioner and csi-resizer for the driver; may be repeated")
	flags.StringVar(&options.Bin, "bin", ".cache/bin", "directory of the programs; KUBEBUILDER_ASSETS is searched next")
	flags.BoolVar(&options.RealKubelets, "real-kubelets", false,
		"run containerd and kubelet on each node, in a machine made of namespaces")
	flags.BoolVar(&options.KubeletDefaults, "kubelet-defaults", false,
		"let the kubelets report their nodes as seldom as the default configuration, instead of every second")
	flags.StringVar(&options.ContainerProgram, "container-program", "",
		"PATH of a static program: the one that pods on real nodes can run; without arguments of theirs it gets \"pause\" "+
			"and has to wait")
	flags.StringVar(&options.Controllers, "controllers", "*", "controllers of kube-controller-manager")
	flags.BoolVar(&options.AuditLog, "audit-log", true, "write a JSON line for every request to DIR/audit.log")
	flags.BoolVar(&options.Durable, "fsync", false, "let etcd wait for the disk")
	flags.StringVar(&options.AttacherSocket, "attacher-socket", "", "PATH of a driver's socket: run csi-attacher for it")
	flags.StringArrayVar(&options.APIServerArgs, "apiserver-arg", nil,
		"a further argument of kube-apiserver; may be repeated")
	flags.StringArrayVar(&options.ControllerManagerArgs, "controller-manager-arg", nil,
		"a further argument of kube-controller-manager; may be repeated")
	flags.StringArrayVar(&options.Manifests, "apply", nil,
		"file, directory or kustomization to apply at the end; may be repeated")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var err error
	if options.Layout, err = layout(*dir); err != nil {
		return err
	}
	if options.Nodes, err = nodeNames(*nodes); err != nil {
		return err
	}
	if options.ControllerSockets, err = parseSockets(*sockets); err != nil {
		return err
	}
	if options.AttacherSocket, err = socketPath(options.AttacherSocket); err != nil {
		return err
	}
	if options.RealKubelets && options.ContainerProgram == "" {
		return errors.New("--real-kubelets needs a --container-program")
	}
	if !*attachDetach {
		options.Controllers += ",-persistentvolume-attach-detach-controller"
	}
	if options.Self, err = os.Executable(); err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	return cluster.Up(ctx, options)
}

func down(_ context.Context, flags *pflag.FlagSet, args []string) error {
	purge := flags.Bool("purge", false, "delete the directory too")
	l, err := parse(flags, args, 0)
	if err != nil {
		return err
	}
	return cluster.Down(l, *purge, os.Stdout)
}

func discard(_ context.Context, flags *pflag.FlagSet, args []string) error {
	l, err := parse(flags, args, 0)
	if err != nil {
		return err
	}
	return cluster.Discard(l, os.Stdout)
}

func status(_ context.Context, flags *pflag.FlagSet, args []string) error {
	l, err := parse(flags, args, 0)
	if err != nil {
		return err
	}
	return cluster.Status(l, os.Stdout)
}

func stop(_ context.Context, flags *pflag.FlagSet, args []string) error {
	l, err := parse(flags, args, 1)
	if err != nil {
		return err
	}
	return cluster.Stop(l, flags.Arg(0), os.Stdout)
}

func start(ctx context.Context, flags *pflag.FlagSet, args []string) error {
	l, err := parse(flags, args, 1)
	if err != nil {
		return err
	}
	return cluster.Start(ctx, l, flags.Arg(0))
}

func runGuest(_ context.Context, flags *pflag.FlagSet, args []string) error {
	dir := flags.String("dir", "", "directory of the cluster")
	name := flags.String("name", "", "name of the process")
	node := flags.String("node", "", "node with a real kubelet to start it on")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *name == "" || flags.NArg() == 0 {
		return errors.New("run takes --name NAME [--node NODE] -- PROGRAM [ARGUMENT ...]")
	}
	l, err := layout(*dir)
	if err != nil {
		return err
	}
	if problems := validation.IsDNS1123Subdomain(*name); len(problems) > 0 {
		return fmt.Errorf("--name: %q is no name: %s", *name, problems[0])
	}
	program, err := exec.LookPath(flags.Arg(0))
	if err == nil {
		program, err = filepath.Abs(program) // "start" may have another working directory
	}
	if err != nil {
		return fmt.Errorf("finding the program: %w", err)
	}
	return cluster.Run(l, *name, *node, program, flags.Args()[1:])
}

func startAttacher(_ context.Context, flags *pflag.FlagSet, args []string) error {
	var options cluster.Options
	flags.StringVar(&options.Bin, "bin", ".cache/bin", "directory of the programs")
	flags.StringVar(&options.AttacherSocket, "socket", "", "PATH of the driver's socket")
	flags.StringArrayVar(&options.AttacherArgs, "attacher-arg", nil, "a further argument of csi-attacher; may be repeated")
	var err error
	if options.Layout, err = parse(flags, args, 0); err != nil {
		return err
	}
	if options.AttacherSocket, err = socketPath(options.AttacherSocket); err != nil {
		return err
	}
	if options.AttacherSocket == "" {
		return errors.New("--socket is missing")
	}
	if options.Self, err = os.Executable(); err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	return options.StartAttacher()
}

func backup(ctx context.Context, flags *pflag.FlagSet, args []string) error {
	l, err := parse(flags, args, 1)
	if err != nil {
		return err
	}
	return cluster.Backup(ctx, l, flags.Arg(0))
}

func restore(ctx context.Context, flags *pflag.FlagSet, args []string) error {
	bump := flags.Uint64("bump-revision", 0, "how much to add to the revision; what is below counts as compacted")
	l, err := parse(flags, args, 1)
	if err != nil {
		return err
	}
	return cluster.Restore(ctx, l, flags.Arg(0), *bump, os.Stdout)
}

func silence(_ context.Context, flags *pflag.FlagSet, args []string) error {
	l, err := parse(flags, args, 1)
	if err != nil {
		return err
	}
	if err := os.WriteFile(l.Silence(flags.Arg(0)), nil, 0o644); err != nil {
		return fmt.Errorf("silencing node %s: %w", flags.Arg(0), err)
	}
	return nil
}

func wake(_ context.Context, flags *pflag.FlagSet, args []string) error {
	l, err := parse(flags, args, 1)
	if err != nil {
		return err
	}
	if err := os.Remove(l.Silence(flags.Arg(0))); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("waking node %s: %w", flags.Arg(0), err)
	}
	return nil
}

func runNodeParts(ctx context.Context, flags *pflag.FlagSet, args []string) error {
	nodes := flags.StringArray("node", nil, "a node to play; may be repeated")
	l, err := parse(flags, args, 0)
	if err != nil {
		return err
	}
	return cluster.RunNodeParts(ctx, l, *nodes, slog.Default())
}

func runMachine(ctx context.Context, flags *pflag.FlagSet, args []string) error {
	var options machine.Options
	flags.StringVar(&options.Address, "address", "", "address of the machine")
	flags.StringVar(&options.ControlGroup, "control-group", "", "control group above those of the pods")
	flags.StringVar(&options.APIServer, "api-server", "", "address of the API server")
	l, err := parse(flags, args, 0)
	if err != nil {
		return err
	}
	options.Directory = l.Root
	return machine.Run(ctx, options)
}

// keepRunning takes the program and its arguments after "--".
func keepRunning(ctx context.Context, _ *pflag.FlagSet, args []string) error {
	if len(args) < 2 || args[0] != "--" {
		return errors.New("keep-running takes -- PROGRAM [ARGUMENT ...]")
	}
	process.KeepRunning(ctx, args[1], args[2:], slog.Default())
	return nil
}
