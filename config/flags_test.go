/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package config_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/hawser-io/hawser/test/apiserver"
)

// flagArgument is a line of a pod's args.
var flagArgument = regexp.MustCompile(`(?m)^\s+- --([a-z-]+)`)

func TestTheProgramsKnowEveryFlagOfTheManifests(t *testing.T) {
	for component, program := range map[string]string{"operator": "operator", "manager": "manager", "agent": "agent",
		"observer": "manager"} {
		manifest, err := os.ReadFile(filepath.Join(component, component+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		source := programSource(t, program)
		found := flagArgument.FindAllStringSubmatch(string(manifest), -1)
		if len(found) == 0 {
			t.Errorf("%s.yaml sets no flag", component)
		}
		for _, match := range found {
			if !strings.Contains(source, `"`+match[1]+`"`) {
				t.Errorf("%s.yaml sets --%s, which cmd/%s does not know", component, match[1], program)
			}
		}
	}
}

func programSource(t *testing.T, program string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(apiserver.Root(), "cmd", program, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var source strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		source.Write(text)
	}
	return source.String()
}
