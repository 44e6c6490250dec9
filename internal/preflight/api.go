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
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/hawser-io/hawser/internal/explain/catalog"
	"github.com/hawser-io/hawser/internal/explain/facts"
)

// Versions of Kubernetes that this release supports; docs/install.md has them too, and a test compares.
var (
	oldest = version.MustParseGeneric("1.35")
	newest = version.MustParseGeneric("1.37")
)

// apiServer is the object of findings about the API server itself.
var apiServer = facts.Ref{Kind: "Service", Namespace: "default", Name: "kubernetes"}

func kubernetesVersion(x *examination) {
	v, err := version.ParseGeneric(x.Version)
	if err != nil {
		x.unknown(KindVersion, err)
		return
	}
	minor := version.MustParseGeneric(fmt.Sprintf("%d.%d", v.Major(), v.Minor()))
	supported := fmt.Sprintf("Hawser supports %s to %s", oldest, newest)
	switch {
	case minor.LessThan(oldest):
		x.find(catalog.KubernetesTooOld, apiServer, "the API server is %s, %s", x.Version, supported)
	case newest.LessThan(minor):
		x.find(catalog.KubernetesNotTested, apiServer, "the API server is %s, %s", x.Version, supported)
	default:
		x.ok("%s; %s", x.Version, supported)
	}
}

func apiKinds(x *examination) {
	before := len(x.report.Checks)
	var missing []string
	withoutMutating := false
	for _, gvk := range x.Release.Kinds {
		switch {
		case x.Served[gvk]:
		case mutating(gvk.Kind):
			withoutMutating = true
		default:
			missing = append(missing, gvk.GroupVersion().String()+" "+gvk.Kind)
		}
	}
	if len(missing) > 0 {
		x.find(catalog.KindsNotServed, apiServer, "not served: %s", strings.Join(missing, ", "))
	}
	if withoutMutating {
		x.find(catalog.NoMutatingPolicies, apiServer, "Kubernetes is %s", x.Version)
	}
	if len(x.Unavailable) > 0 {
		x.find(catalog.GroupsUnavailable, facts.Ref{Kind: "APIService", Name: x.Unavailable[0]},
			"without an answer: %s", strings.Join(x.Unavailable, ", "))
	}
	if len(x.report.Checks) == before {
		x.ok("all %d that Hawser needs are served", len(x.Release.Kinds))
	}
}

// policyPlugins are the admission plugins that the policies need.
var policyPlugins = []string{"ValidatingAdmissionPolicy", "MutatingAdmissionPolicy"}

func policies(x *examination) {
	var refused, untried []Trial
	for _, t := range x.PolicyTrials {
		switch {
		case t.refused():
			refused = append(refused, t)
		case !t.accepted():
			untried = append(untried, t)
		}
	}
	flags := x.flags("kube-apiserver", "disable-admission-plugins")
	for _, f := range flags {
		for _, plugin := range policyPlugins {
			if slices.Contains(strings.Split(f.value, ","), plugin) {
				x.find(catalog.PoliciesDisabled, f.pod, "--disable-admission-plugins has %s", plugin)
				return
			}
		}
	}
	switch {
	case len(refused) > 0:
		x.find(catalog.PoliciesRefused, refused[0].Object, "%d of %d are refused: %v", len(refused), len(x.PolicyTrials),
			refused[0].Err)
	case len(untried) > 0:
		x.unknown(KindPolicyTrial, untried[0].Err)
	case len(flags) > 0:
		x.ok("all %d objects pass a dry run, and the API server's flags leave policies on", len(x.PolicyTrials))
	default:
		x.ok("all %d objects pass a dry run. The flags of the API server cannot be seen; the manager attaches nothing "+
			"before it has seen policies refuse", len(x.PolicyTrials))
	}
}

func rights(x *examination) {
	var missing, granting []string
	for i := range x.Rights {
		switch r := &x.Rights[i]; {
		case r.Err != nil:
			x.unknown(KindRights, r.Err)
			return
		case r.Allowed:
		case r.granting():
			granting = append(granting, r.Verb+" "+r.Resource)
		default:
			missing = append(missing, r.Resource)
		}
	}
	you := facts.Ref{Kind: "User", Name: cmp.Or(x.User, "(yours)")}
	switch {
	case len(missing) > 0:
		x.find(catalog.RightsMissing, you, "you may not create %s", strings.Join(missing, ", "))
	case len(granting) > 0:
		x.find(catalog.RightsUncertain, you, "you may not %s", strings.Join(granting, ", "))
	default:
		x.ok("you may create all that config/default contains")
	}
}

const enforce = "pod-security.kubernetes.io/enforce"

func privilegedPods(x *examination) {
	space := facts.Ref{Kind: KindNamespace, Name: x.System}
	if !x.Namespace.Found {
		absentNamespace(x, space)
		return
	}
	level := x.Namespace.Value.Labels[enforce]
	switch t := x.PodTrial; {
	case t.accepted():
		x.ok("one passes a dry run in namespace %s", x.System)
	case !t.refused() || noAccount(t.Err):
		byLabel(x, space, level)
	case strings.Contains(t.Err.Error(), "violates PodSecurity"):
		x.find(catalog.NamespaceRestricted, space, "%v", t.Err)
	default:
		x.find(catalog.PrivilegedRefused, space, "%v", t.Err)
	}
}

// noAccount reports whether the pod was refused for its account, which is made a moment after its namespace.
func noAccount(err error) bool {
	return err != nil && strings.Contains(err.Error(), "error looking up service account")
}

// byLabel judges where no pod can be tried.
func byLabel(x *examination, space facts.Ref, level string) {
	switch level {
	case "privileged":
		x.ok("namespace %s has the label %s=privileged; no pod could be tried there", x.System, enforce)
	case "":
		x.find(catalog.NamespaceRestricted, space, "it has no label %s, and no pod could be tried", enforce)
	default:
		x.find(catalog.NamespaceRestricted, space, "it has the label %s=%s", enforce, level)
	}
}

// absentNamespace judges by the dry run of a namespace with the label. No pod can be tried before it exists.
func absentNamespace(x *examination, space facts.Ref) {
	switch t := x.NamespaceTrial; {
	case t.refused():
		x.find(catalog.NamespaceRefused, space, "%v", t.Err)
	case !t.accepted():
		x.unknown(KindSpaceTrial, t.Err)
	default:
		x.ok("namespace %s passes a dry run with the label %s=privileged. It does not exist yet, so no pod "+
			"could be tried: a webhook or policy may still refuse one", x.System, enforce)
	}
}

func apiPort(x *examination) {
	var ports, others []string
	for _, slice := range x.Endpoints.Items {
		for _, p := range slice.Ports {
			if p.Port == nil {
				continue
			}
			text := fmt.Sprint(*p.Port)
			ports = append(ports, text)
			if !slices.Contains(x.Release.APIPorts, *p.Port) {
				others = append(others, text)
			}
		}
	}
	switch {
	case len(ports) == 0:
		x.unknown(KindEndpoints, unseen("Service default/kubernetes has no endpoint"))
	case len(others) > 0:
		x.find(catalog.APIServerPort, apiServer, "it listens on %s; allowed: %s", strings.Join(others, ", "),
			list(x.Release.APIPorts))
		x.report.InitialSpec["networkPolicy"] = "None"
	default:
		x.ok("%s, which Hawser's NetworkPolicy allows", strings.Join(slices.Compact(ports), ", "))
	}
}

// flag of a program of the control plane, of one pod.
type flag struct {
	pod   facts.Ref
	value string
}

// flags are the values of a flag in the pods of a program; the value is empty where the flag is not set, and there is
// none where no pod of the program can be seen.
func (x *examination) flags(program, name string) []flag {
	var found []flag
	for _, pod := range x.ControlPlane.Items {
		for _, c := range pod.Spec.Containers {
			words := slices.Concat(c.Command, c.Args)
			if !runs(words, program) {
				continue
			}
			found = append(found, flag{refOf(pod), valueOf(words, "--"+name)})
		}
	}
	return found
}

// runs reports whether a command is that of a program.
func runs(words []string, program string) bool {
	return len(words) > 0 && (words[0] == program || strings.HasSuffix(words[0], "/"+program))
}

// valueOf a flag with a list, written with = or as a word of its own. Where it is repeated, its values are one list.
func valueOf(words []string, name string) string {
	var values []string
	for i, word := range words {
		if v, ok := strings.CutPrefix(word, name+"="); ok {
			values = append(values, v)
		} else if word == name && i+1 < len(words) {
			values = append(values, words[i+1])
		}
	}
	return strings.Join(values, ",")
}

func refOf(pod *corev1.Pod) facts.Ref {
	return facts.Ref{Kind: facts.KindPod, Namespace: pod.Namespace, Name: pod.Name}
}
