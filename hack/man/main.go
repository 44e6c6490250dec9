/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Command man writes the manual pages of the plugin into a directory, one for each command. SOURCE_DATE_EPOCH is the
// date in them, so the same commit gives the same bytes.
//
//	man VERSION DIRECTORY
package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/util/homedir"

	"github.com/hawser-io/hawser/internal/cli"
)

func main() {
	if err := write(os.Args[1:], os.Getenv("SOURCE_DATE_EPOCH")); err != nil {
		fmt.Fprintln(os.Stderr, "man:", err)
		os.Exit(1)
	}
}

func write(args []string, epoch string) error {
	if len(args) != 2 {
		return errors.New("usage: man VERSION DIRECTORY")
	}
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil {
		return fmt.Errorf("reading SOURCE_DATE_EPOCH: %w", err)
	}
	date := time.Unix(seconds, 0).UTC()
	header := &doc.GenManHeader{Section: "1", Source: "hawser " + args[0], Manual: "kubectl hawser", Date: &date}
	root := cli.NewCommand(genericiooptions.IOStreams{})
	root.DisableAutoGenTag = true
	root.InitDefaultCompletionCmd()
	// The directory of a cache is one of the machine that reads the page.
	root.PersistentFlags().VisitAll(func(f *pflag.Flag) {
		f.DefValue = strings.ReplaceAll(f.DefValue, homedir.HomeDir(), "$HOME")
	})
	if err := doc.GenManTree(root, header, args[1]); err != nil {
		return fmt.Errorf("writing the manual pages: %w", err)
	}
	return nil
}
