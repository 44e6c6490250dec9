/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package process

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// kept are the variables of the caller that programs get. A kubeconfig, a home directory, proxies and the variables of
// a pod are not among them: with those, a program can reach another cluster than this one.
var kept = []string{
	"PATH", "TMPDIR", "LANG", "LC_ALL", "POD_NAMESPACE",
	"GOCOVERDIR", "GODEBUG", "GOGC", "GOMAXPROCS", "GOMEMLIMIT", "GORACE", "GOTRACEBACK",
}

var keptPrefixes = []string{"HAWSER_", "LOCALCLUSTER_", "RELATED_IMAGE_"}

// Command is exec.CommandContext with a clean environment. Everything that the cluster runs is started with it. What a
// program is to talk to is in its arguments.
func Command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return !slices.Contains(kept, name) &&
			!slices.ContainsFunc(keptPrefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
	})
	// Without KUBECONFIG, clients read the home directory's file. Without HOME, some ask the user database for it. This
	// directory is not there, and nobody can create it. KUBECONFIG must not be set at all: csi-provisioner prefers it
	// to its --kubeconfig.
	cmd.Env = append(cmd.Env, "HOME=/proc/home-of-nobody")
	return cmd
}
