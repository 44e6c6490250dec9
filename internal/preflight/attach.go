/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package preflight

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/hawser-io/hawser/internal/explain/catalog"
	"github.com/hawser-io/hawser/internal/explain/facts"
)

// Names of the attach/detach controller in --controllers. The second one is an alias.
const (
	attachDetachController = "persistentvolume-attach-detach-controller"
	attachDetachAlias      = "attachdetach"
)

// managedAttach is set by kubelets that leave attaching to a controller.
const managedAttach = "volumes.kubernetes.io/controller-managed-attach-detach"

// AttachMode is what the cluster allows.
type AttachMode struct {
	// Mode to begin with.
	Mode string `json:"mode"`
	// Replace is true if --controllers of kube-controller-manager can be set, which the mode Replace needs.
	Replace bool `json:"replacePossible"`
	// Why, and where the flag is.
	Text string `json:"text"`
}

// mode that fits the distribution. A value of --controllers that is set replaces that of the distribution, so the
// present one is continued.
func (d *distribution) mode(x *examination) AttachMode {
	if d.managed {
		return AttachMode{Mode: "Coexist", Text: fmt.Sprintf("%s runs kube-controller-manager, and --controllers cannot be "+
			"set: the mode Replace is not possible", d.Name)}
	}
	flags := x.flags("kube-controller-manager", "controllers")
	if slices.ContainsFunc(flags, func(f flag) bool { return !enabled(f.value) }) {
		return AttachMode{Mode: "Replace", Replace: true, Text: "The attach/detach controller is off. For Coexist " +
			"turn it on " +
			"in " + d.flag}
	}
	value := d.list
	if len(flags) > 0 {
		value = cmp.Or(flags[0].value, "*")
	}
	if d.Name == "" && len(flags) == 0 {
		return AttachMode{Mode: "Coexist", Replace: true, Text: "Coexist needs no change. The distribution was not " +
			"recognised: docs/preflight.md has where --controllers is set on each, which Replace needs"}
	}
	off := "-" + attachDetachController
	how := "add " + off + " to the value of --controllers"
	if value != "" {
		how = "set --controllers=" + value + "," + off
	}
	return AttachMode{Mode: "Coexist", Replace: true,
		Text: "Coexist needs no change. For Replace " + how + " in " + d.flag}
}

// enabled reports whether a value of --controllers lets the attach/detach controller run, as kube-controller-manager
// decides: the first name of it counts, then the asterisk, which is the default.
func enabled(value string) bool {
	if value == "" {
		return true
	}
	star := false
	for _, name := range strings.Split(value, ",") {
		switch name {
		case attachDetachController, attachDetachAlias:
			return true
		case "-" + attachDetachController, "-" + attachDetachAlias:
			return false
		case "*":
			star = true
		}
	}
	return star
}

func attachDetach(x *examination) {
	x.kubeletsThatAttach()
	var on, off []flag
	for _, f := range x.flags("kube-controller-manager", "controllers") {
		if enabled(f.value) {
			on = append(on, f)
		} else {
			off = append(off, f)
		}
	}
	listed := 0
	for _, n := range x.Nodes.Items {
		listed += len(n.Status.VolumesAttached)
	}
	switch {
	case len(off) > 0:
		x.find(catalog.AttachDetachOff, off[0].pod, "--controllers=%s in %d of %d pods of kube-controller-manager",
			off[0].value, len(off), len(off)+len(on))
	case len(on) > 0:
		var pods []string
		for _, f := range on {
			pods = append(pods, f.pod.Name)
		}
		x.ok("on, by the flags of %s", few(pods))
	case listed > 0:
		x.ok("on, or was until lately: the Nodes list %d attached volumes. Its flags cannot be seen", listed)
	case x.distribution.managed:
		x.ok("%s runs it; its flags cannot be seen", x.distribution.Name)
	default:
		x.unknown(KindControllers, unseen("no pod of kube-controller-manager can be seen, as on %s, and no Node lists an "+
			"attached volume", x.distribution.String()))
	}
}

// kubeletsThatAttach finds nodes whose volumes no controller attaches.
func (x *examination) kubeletsThatAttach() {
	var own []string
	for _, n := range x.Nodes.Items {
		if n.Annotations[managedAttach] != "true" && x.hasAgent(n) {
			own = append(own, n.Name)
		}
	}
	if len(own) > 0 {
		x.find(catalog.KubeletAttaches, nodeRef(own[0]), "%d of %d nodes: %s", len(own), len(x.Nodes.Items), few(own))
	}
}

func nodeRef(name string) facts.Ref { return facts.Ref{Kind: facts.KindNode, Name: name} }

// few names some of a list, and counts the rest.
func few(names []string) string {
	const most = 3
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// hasAgent reports whether an agent would run on the node.
func (x *examination) hasAgent(n *corev1.Node) bool { return agentRunsOn(n, x.Release) }
