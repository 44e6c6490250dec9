/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Command sbom prints an SPDX 2.3 document of programs: the modules that the Go compiler recorded in them.
//
//	sbom NAME VERSION EPOCH FILE...
package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"
)

// noAssertion is SPDX for what the document does not claim.
const noAssertion = "NOASSERTION"

type document struct {
	Version       string         `json:"spdxVersion"`
	License       string         `json:"dataLicense"`
	ID            string         `json:"SPDXID"`
	Name          string         `json:"name"`
	Namespace     string         `json:"documentNamespace"`
	Creation      creation       `json:"creationInfo"`
	Packages      []pack         `json:"packages"`
	Relationships []relationship `json:"relationships"`
}

type creation struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

type pack struct {
	ID               string      `json:"SPDXID"`
	Name             string      `json:"name"`
	Version          string      `json:"versionInfo"`
	Location         string      `json:"downloadLocation"`
	FilesAnalyzed    bool        `json:"filesAnalyzed"`
	LicenseConcluded string      `json:"licenseConcluded"`
	LicenseDeclared  string      `json:"licenseDeclared"`
	Copyright        string      `json:"copyrightText"`
	Checksums        []checksum  `json:"checksums,omitempty"`
	References       []reference `json:"externalRefs,omitempty"`
}

type checksum struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"checksumValue"`
}

type reference struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type relationship struct {
	From string `json:"spdxElementId"`
	Type string `json:"relationshipType"`
	To   string `json:"relatedSpdxElement"`
}

func main() {
	if len(os.Args) < 5 {
		fmt.Fprintln(os.Stderr, "usage: sbom NAME VERSION EPOCH FILE...")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3], os.Args[4:]); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func run(name, version, epoch string, files []string) error {
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil {
		return fmt.Errorf("reading the time: %w", err)
	}
	d := document{Version: "SPDX-2.3", License: "CC0-1.0", ID: "SPDXRef-DOCUMENT", Name: name + "-" + version,
		Namespace: "https://github.com/hawser-io/hawser/releases/" + version + "/" + name + ".spdx.json",
		Creation: creation{Created: time.Unix(seconds, 0).UTC().Format(time.RFC3339),
			Creators: []string{"Organization: The Hawser Authors", "Tool: hack/sbom"}}}
	for _, file := range files {
		if err := d.addProgram(file, version); err != nil {
			return fmt.Errorf("program %s: %w", file, err)
		}
	}
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", "  ")
	return out.Encode(d)
}

func (d *document) addProgram(file, version string) error {
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return err
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	// The architecture is the directory's name.
	name := filepath.Base(file) + "-" + filepath.Base(filepath.Dir(file))
	program := pack{ID: id("program", name, version), Name: name, Version: version, Location: noAssertion,
		LicenseConcluded: "Apache-2.0", LicenseDeclared: "Apache-2.0", Copyright: "The Hawser Authors",
		Checksums: []checksum{{"SHA256", fmt.Sprintf("%x", sha256.Sum256(data))}}}
	d.Packages = append(d.Packages, program)
	d.Relationships = append(d.Relationships, relationship{d.ID, "DESCRIBES", program.ID})
	stdlib := &debug.Module{Path: "stdlib", Version: strings.TrimPrefix(info.GoVersion, "go")}
	for _, module := range slices.Concat(info.Deps, []*debug.Module{stdlib}) {
		if module.Replace != nil {
			module = module.Replace
		}
		d.addModule(program.ID, module)
	}
	return nil
}

// addModule adds a module, once in the document, and that the program contains it.
func (d *document) addModule(program string, module *debug.Module) {
	p := pack{ID: id("module", module.Path, module.Version), Name: module.Path, Version: module.Version,
		Location: noAssertion, LicenseConcluded: noAssertion, LicenseDeclared: noAssertion, Copyright: noAssertion,
		References: []reference{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + module.Path + "@" + module.Version}}}
	if !slices.ContainsFunc(d.Packages, func(known pack) bool { return known.ID == p.ID }) {
		d.Packages = append(d.Packages, p)
	}
	d.Relationships = append(d.Relationships, relationship{program, "CONTAINS", p.ID})
}

// id is an identifier of SPDX: letters, digits, dots and dashes.
func id(parts ...string) string {
	return "SPDXRef-" + strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' {
			return r
		}
		return '-'
	}, strings.Join(parts, "-"))
}
