/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package selinux

import (
	"strings"
	"testing"
	"testing/fstest"

	corev1 "k8s.io/api/core/v1"
)

const files = "system_u:object_r:container_file_t:s0"

func TestTheLabelOfContainerFilesIsTheNodes(t *testing.T) {
	policy := fstest.MapFS{
		"etc/selinux/config": {Data: []byte("# SELINUXTYPE= names the policy\nSELINUX=enforcing\nSELINUXTYPE=default\n")},
		"etc/selinux/default/contexts/lxc_contexts": {
			Data: []byte("process = \"system_u:system_r:container_t:s0\"\nfile = \"" + files + "\"\nro_file = \"x\"\n")},
	}
	both := fstest.MapFS{contextsFile: {Data: []byte(`file="u:r:t:s0"`)}}
	for name, f := range policy {
		both[name] = f
	}
	for name, test := range map[string]struct {
		node fstest.MapFS
		want string
	}{
		"the policy's":          {policy, files},
		"that of the container": {both, "u:r:t:s0"},
	} {
		if got, err := FileLabel(test.node); err != nil || got != test.want {
			t.Errorf("label of %s files: %q, error %v; want %q", name, got, err, test.want)
		}
	}
	for name, node := range map[string]fstest.MapFS{
		"no files": {}, "no label": {contextsFile: {Data: []byte("process = x")}},
	} {
		if got, err := FileLabel(node); err == nil || !strings.Contains(err.Error(), "container files") {
			t.Errorf("label on a node with %s: %q, error %v; want an error", name, got, err)
		}
	}
}

func TestALabelIsThatOfTheKubelet(t *testing.T) {
	for _, test := range []struct {
		options corev1.SELinuxOptions
		want    string
	}{
		{corev1.SELinuxOptions{Level: "s0:c1,c2"}, "system_u:object_r:container_file_t:s0:c1,c2"},
		{corev1.SELinuxOptions{Level: "s0:c1,c2", Type: "container_t", Role: "system_r"},
			"system_u:object_r:container_file_t:s0:c1,c2"},
		{corev1.SELinuxOptions{User: "staff_u", Level: "s0"}, "staff_u:object_r:container_file_t:s0"},
	} {
		if got := Label(files, &test.options); got != test.want {
			t.Errorf("label for %+v: %q, want %q", test.options, got, test.want)
		}
	}
	if got, want := Option("u:r:t:s0:c1,c2"), `context="u:r:t:s0:c1,c2"`; got != want {
		t.Errorf("option: %s, want %s", got, want)
	}
}

func TestTheLabelOfAMountIsFoundInItsOptions(t *testing.T) {
	for want, options := range map[string][]string{
		"u:r:t:s0:c1,c2": {"rw", `context="u:r:t:s0:c1,c2"`, "noatime"},
		"u:r:t:s0":       {"rw", "context=u:r:t:s0"},
		"":               {"rw", "seclabel", "fscontext=u:r:t:s0"},
	} {
		if got := Of(options); got != want {
			t.Errorf("label of a mount with %q: %q, want %q", options, got, want)
		}
	}
}

func TestLabelsAreTheSameHoweverTheirCategoriesAreWritten(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want bool
	}{
		{"u:r:t:s0:c2,c1", "u:r:t:s0:c1,c2", true},
		{"u:r:t:s0:c1.c3", "u:r:t:s0:c1,c2,c3", true},
		{"u:r:t:s0:c1,c2-s0:c1,c2", "u:r:t:s0:c1,c2", true},
		{"u:r:t:s0-s0:c1,c2", "u:r:t:s0-s0:c2,c1", true},
		{"u:r:t:s0:c1,c2", "u:r:t:s0:c1,c3", false},
		{"u:r:t:s0:c1", "u:r:t:s0", false},
		{"u:r:t:s0:c1", "u:r:x:s0:c1", false},
		{"u:r:t:s0:c1.c99999999999", "u:r:t:s0:c1", false},
		{"", "u:r:t:s0", false},
	} {
		if got := Same(test.a, test.b); got != test.want {
			t.Errorf("%q and %q are the same: %t, want %t", test.a, test.b, got, test.want)
		}
	}
}

func TestWhatCouldEndAMountOptionIsNotValid(t *testing.T) {
	for _, o := range []corev1.SELinuxOptions{
		{}, {Type: "container_t"}, {Level: `s0",suid,x="`}, {Level: "s0 c1"}, {User: "a,b", Level: "s0"},
		{User: `a\`, Level: "s0"}, {Type: "a:b", Level: "s0"}, {Role: "ä", Level: "s0"},
	} {
		if Valid(&o) {
			t.Errorf("%+v is valid, want it refused", o)
		}
	}
	o := corev1.SELinuxOptions{User: "system_u", Role: "system_r", Type: "container_t", Level: "s0-s15:c0.c1023"}
	if !Valid(&o) {
		t.Errorf("%+v is not valid, want it accepted", o)
	}
}
