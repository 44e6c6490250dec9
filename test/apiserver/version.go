/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package apiserver

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/util/version"
)

// firstWithMutatingPolicies is the first release with MutatingAdmissionPolicy v1.
var firstWithMutatingPolicies = version.MajorMinor(1, 36)

// release asks the API server's program for its version, once.
var release = sync.OnceValues(func() (*version.Version, error) {
	output, err := exec.Command(filepath.Join(os.Getenv(AssetsVariable), "kube-apiserver"), "--version").Output()
	if err != nil {
		return nil, fmt.Errorf("asking kube-apiserver for its version: %w", err)
	}
	parsed, err := version.ParseSemantic(strings.TrimPrefix(strings.TrimSpace(string(output)), "Kubernetes "))
	if err != nil {
		return nil, fmt.Errorf("reading the version of kube-apiserver: %w", err)
	}
	return parsed, nil
})

// MutatingPolicies reports whether the API server has mutating admission policies. Where it has none, the manager sets
// the finalizer of intents itself.
func MutatingPolicies(t *testing.T) bool {
	t.Helper()
	needPrograms(t)
	version, err := release()
	if err != nil {
		t.Fatal(err)
	}
	return version.AtLeast(firstWithMutatingPolicies)
}

// withoutMutatingPolicies replaces the kustomization in kubectl's arguments, if the API server needs that.
func withoutMutatingPolicies(t *testing.T, args []string) []string {
	t.Helper()
	i := slices.Index(args, "-k") + 1
	if i == 0 || MutatingPolicies(t) {
		return args
	}
	args = slices.Clone(args)
	args[i] = Overlay(t, args[i], "kubernetes-1.35")
	return args
}

// kustomization is what a documented command applies or deletes.
var kustomization = regexp.MustCompile(`-k config/([a-z-]+)`)

// Commands returns documented commands as they have to be for the version of the API server.
func Commands(t *testing.T, commands string) string {
	t.Helper()
	if MutatingPolicies(t) {
		return commands
	}
	return kustomization.ReplaceAllStringFunc(commands, func(argument string) string {
		return "-k " + Overlay(t, kustomization.FindStringSubmatch(argument)[1], "kubernetes-1.35")
	})
}
