/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package environment keeps tests and tools away from the clusters of whoever runs them. A process that imports it has
// a clean environment from its beginning, and so has every program that it starts.
package environment

import (
	"go/build"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// home is the home directory of tests and tools: it is not there, and nobody can create it. An unset HOME does not do:
// controller-runtime then asks the user database for it.
const home = "/proc/home-of-nobody"

// kept are the variables that stay: those by which programs are found, what `go build` needs, and settings of the
// tests. The proxies are for `go build`: the API servers of tests listen on loopback, which is never asked through one.
// What leads to a cluster is not among them.
var kept = []string{
	"PATH", "TMPDIR", "LANG", "LC_ALL", "TERM", "NO_COLOR", "KEEP",
	"CC", "CXX", "GIT_CONFIG_GLOBAL", "XDG_CACHE_HOME", "SSL_CERT_FILE", "SSL_CERT_DIR",
	"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
	"POD_NAMESPACE", "CSI_LOOP_BINARY",
}

// keptPrefixes are the beginnings of the names of further ones.
var keptPrefixes = []string{"GO", "CGO_", "AGENT_TEST_", "HAWSER_", "KUBEBUILDER_", "RELATED_IMAGE_"}

// No process has to remember it, and nothing has read the environment before.
func init() {
	clean := With()
	os.Clearenv()
	for _, variable := range clean {
		name, value, _ := strings.Cut(variable, "=")
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
}

// With returns the clean environment of a program, with further variables. It leads to no cluster but the one that they
// name.
func With(variables ...string) []string {
	env := slices.DeleteFunc(os.Environ(), func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return !slices.Contains(kept, name) && (strings.HasPrefix(name, "GOOGLE_") ||
			!slices.ContainsFunc(keptPrefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) }))
	})
	// Where KUBECONFIG is unset, clients read the home directory's.
	return slices.Concat(withoutHome(env), []string{"HOME=" + home, "KUBECONFIG=" + os.DevNull}, variables)
}

// withoutHome sets what `go build` otherwise derives from the home directory.
func withoutHome(env []string) []string {
	if cache, err := os.UserCacheDir(); err == nil && os.Getenv("GOCACHE") == "" {
		env = append(env, "GOCACHE="+filepath.Join(cache, "go-build"))
	}
	if os.Getenv("GOPATH") == "" {
		env = append(env, "GOPATH="+build.Default.GOPATH)
	}
	if config, err := os.UserConfigDir(); err == nil && os.Getenv("GOENV") == "" {
		env = append(env, "GOENV="+filepath.Join(config, "go", "env"))
	}
	if os.Getenv("GIT_CONFIG_GLOBAL") == "" { // go build asks git for the revision
		env = append(env, "GIT_CONFIG_GLOBAL="+filepath.Join(os.Getenv("HOME"), ".gitconfig"))
	}
	return env
}
