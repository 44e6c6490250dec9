/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Command images packs programs as container images, one OCI archive each, without a container tool. hack/images.sh
// runs it.
//
//	images --name hawser/agent --tag dev --program DIR/ARCH/agent ... --root DIR/agent-ARCH.tar --output FILE
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"
)

// options describe one image of all platforms.
type options struct {
	// name without a tag, tag, and version for the labels.
	name, tag, version string
	// title and description are labels.
	title, description string
	// program in the image, a path. It is the entrypoint.
	entrypoint string
	// user that the program runs as.
	user string
	// binaries and roots are patterns of files in which ARCH is the architecture. No root: the program is alone.
	binaries, roots string
	architectures   []string
	// sboms is a pattern of files with the SBOM of the image of each architecture, in SPDX. Empty: none is attached.
	sboms string
	// licence is the file with the text of the licence.
	licence string
	// needs are programs that the root file system must have.
	needs []string
	// created is the time of everything in the image, so that the same input gives the same bytes.
	created time.Time
	output  string
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	index, err := o.index()
	if err != nil {
		return fmt.Errorf("image %s: %w", o.name, err)
	}
	if err := writeArchive(o.output, index, o.reference(), o.tag); err != nil {
		return fmt.Errorf("image %s: %w", o.name, err)
	}
	digest, err := index.Digest()
	if err != nil {
		return fmt.Errorf("image %s: %w", o.name, err)
	}
	fmt.Printf("%s@%s in %s\n", o.reference(), digest, o.output)
	return nil
}

func parse(args []string) (options, error) {
	var o options
	var architectures, needs string
	var epoch int64
	flags := flag.NewFlagSet("images", flag.ContinueOnError)
	flags.StringVar(&o.name, "name", "", "name of the image without a tag")
	flags.StringVar(&o.tag, "tag", "", "tag of the image")
	flags.StringVar(&o.version, "version", "", "version for the labels")
	flags.StringVar(&o.title, "title", "", "title for the labels")
	flags.StringVar(&o.description, "description", "", "description for the labels")
	flags.StringVar(&o.entrypoint, "entrypoint", "", "path of the program in the image")
	flags.StringVar(&o.user, "user", "", "user that the program runs as")
	flags.StringVar(&o.binaries, "binary", "", "file of the program, with ARCH for the architecture")
	flags.StringVar(&o.roots, "root", "", "tar of the root file system, with ARCH for the architecture; empty for none")
	flags.StringVar(&o.sboms, "sbom", "", "SBOM of the image, with ARCH for the architecture; empty for none")
	flags.StringVar(&architectures, "architectures", "amd64,arm64", "architectures, separated by commas")
	flags.StringVar(&o.licence, "licence", "LICENSE", "file with the licence")
	flags.StringVar(&needs, "needs", "", "programs that the root file system must have, separated by commas")
	flags.Int64Var(&epoch, "epoch", 0, "time of the image in seconds since 1970")
	flags.StringVar(&o.output, "output", "", "file to write")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	o.architectures, o.created = strings.Split(architectures, ","), time.Unix(epoch, 0).UTC()
	if needs != "" {
		o.needs = strings.Split(needs, ",")
	}
	for _, required := range []string{"name", "tag", "entrypoint", "binary", "output"} {
		if flags.Lookup(required).Value.String() == "" {
			return o, errors.New("--" + required + " is missing")
		}
	}
	return o, nil
}

// reference is the name by which a container runtime finds the image: short names are completed as it does.
func (o options) reference() string {
	name := o.name
	if host, _, found := strings.Cut(name, "/"); !found || !strings.ContainsAny(host, ".:") && host != "localhost" {
		name = "docker.io/" + name
	}
	return name + ":" + o.tag
}
