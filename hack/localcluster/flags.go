/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hawser-io/hawser/hack/localcluster/internal/cluster"
)

// maxNodes is the number of letters for their names.
const maxNodes = 26

// parse reads the flags of a command, including --dir, and checks the number of arguments.
func parse(flags *pflag.FlagSet, args []string, count int) (cluster.Layout, error) {
	dir := flags.String("dir", "", "directory of the cluster")
	if err := flags.Parse(args); err != nil {
		return cluster.Layout{}, err
	}
	if flags.NArg() != count {
		return cluster.Layout{}, fmt.Errorf("%s takes %d arguments, not %q", flags.Name(), count, flags.Args())
	}
	return layout(*dir)
}

func layout(dir string) (cluster.Layout, error) {
	if dir == "" {
		return cluster.Layout{}, errors.New("--dir is missing")
	}
	return cluster.NewLayout(dir)
}

// nodeNames reads a list of names, or a number of nodes.
func nodeNames(value string) ([]string, error) {
	if count, err := strconv.Atoi(value); err == nil {
		if count < 0 || count > maxNodes {
			return nil, fmt.Errorf("--nodes: %d is not between 0 and %d; give their names", count, maxNodes)
		}
		names := make([]string, count)
		for i := range names {
			names[i] = "node-" + string(rune('a'+i))
		}
		return names, nil
	}
	names := strings.Split(value, ",")
	for _, name := range names {
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
			return nil, fmt.Errorf("--nodes: %q is no name of a node: %s", name, problems[0])
		}
	}
	return names, nil
}

// parseSockets reads DRIVER=PATH pairs.
func parseSockets(pairs []string) (map[string]string, error) {
	sockets := map[string]string{}
	for _, pair := range pairs {
		driver, path, ok := strings.Cut(pair, "=")
		if !ok || driver == "" || path == "" {
			return nil, fmt.Errorf("--controller-socket: %q is not DRIVER=PATH", pair)
		}
		absolute, err := socketPath(path)
		if err != nil {
			return nil, err
		}
		sockets[driver] = absolute
	}
	return sockets, nil
}

// socketPath makes the path of a socket absolute, because the processes that use it have other working directories. An
// empty path stays empty.
func socketPath(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	absolute, err := filepath.Abs(strings.TrimPrefix(path, "unix://"))
	if err != nil {
		return "", fmt.Errorf("resolving the socket %s: %w", path, err)
	}
	return absolute, nil
}
