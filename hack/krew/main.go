/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Command krew prints the manifest with which krew installs the plugin, from its archives. Each archive is named
// kubectl-hawser_VERSION_OS_ARCH.tar.gz.
//
//	krew VERSION ARCHIVE...
package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

const repository = "https://github.com/hawser-io/hawser"

type manifest struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec spec `json:"spec"`
}

type spec struct {
	Version          string     `json:"version"`
	Homepage         string     `json:"homepage"`
	ShortDescription string     `json:"shortDescription"`
	Description      string     `json:"description"`
	Platforms        []platform `json:"platforms"`
}

type platform struct {
	Selector struct {
		MatchLabels map[string]string `json:"matchLabels"`
	} `json:"selector"`
	URI    string `json:"uri"`
	SHA256 string `json:"sha256"`
	Bin    string `json:"bin"`
}

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: krew VERSION ARCHIVE...")
		os.Exit(2)
	}
	out, err := print(os.Args[1], os.Args[2:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "krew:", err)
		os.Exit(1)
	}
	fmt.Print(string(out))
}

func print(version string, archives []string) ([]byte, error) {
	m := manifest{APIVersion: "krew.googlecontainertools.github.com/v1alpha2", Kind: "Plugin"}
	m.Metadata.Name = "hawser"
	m.Spec = spec{Version: version, Homepage: repository,
		ShortDescription: "Explain why a volume is not there",
		Description: "Explains what a pod, claim, volume, intent or node waits for, since when, what must act,\n" +
			"and the command to run. It also works in a cluster without Hawser. Further commands show trees,\n" +
			"use, orphans and history of volumes, and move intents to another node.\n"}
	for _, archive := range archives {
		p, err := platformOf(version, archive)
		if err != nil {
			return nil, err
		}
		m.Spec.Platforms = append(m.Spec.Platforms, p)
	}
	return yaml.Marshal(m)
}

func platformOf(version, archive string) (platform, error) {
	var p platform
	base := filepath.Base(archive)
	name := strings.TrimSuffix(strings.TrimPrefix(base, "kubectl-hawser_"+version+"_"), ".tar.gz")
	system, architecture, ok := strings.Cut(name, "_")
	if !ok || strings.Contains(name, ".") || base != "kubectl-hawser_"+version+"_"+name+".tar.gz" {
		return p, fmt.Errorf("the archive is %s, want kubectl-hawser_%s_OS_ARCH.tar.gz", base, version)
	}
	data, err := os.ReadFile(archive)
	if err != nil {
		return p, err
	}
	sum := sha256.Sum256(data)
	p.Selector.MatchLabels = map[string]string{"os": system, "arch": architecture}
	p.URI = fmt.Sprintf("%s/releases/download/%s/%s", repository, version, base)
	p.SHA256, p.Bin = hex.EncodeToString(sum[:]), "kubectl-hawser"
	if system == "windows" {
		p.Bin += ".exe"
	}
	return p, nil
}
