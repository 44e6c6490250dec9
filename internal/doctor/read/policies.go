/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package read

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hawser-io/hawser/internal/controller/policy/shipped"
	"github.com/hawser-io/hawser/internal/doctor"
	"github.com/hawser-io/hawser/internal/explain/facts"
	"github.com/hawser-io/hawser/internal/pages"
	"github.com/hawser-io/hawser/internal/version"
)

// policies are those that are installed, with their bindings.
type policies struct {
	validating        doctor.List[admissionv1.ValidatingAdmissionPolicy]
	validatingBinding doctor.List[admissionv1.ValidatingAdmissionPolicyBinding]
	mutating          doctor.List[admissionv1.MutatingAdmissionPolicy]
	mutatingBinding   doctor.List[admissionv1.MutatingAdmissionPolicyBinding]
}

func (p *policies) read(all *pages.Reads) {
	ours := client.HasLabels{shipped.Label}
	pages.Read(all, &p.validating, &admissionv1.ValidatingAdmissionPolicyList{}, ours)
	pages.Read(all, &p.validatingBinding, &admissionv1.ValidatingAdmissionPolicyBindingList{}, ours)
	pages.Read(all, &p.mutating, &admissionv1.MutatingAdmissionPolicyList{}, ours)
	pages.Read(all, &p.mutatingBinding, &admissionv1.MutatingAdmissionPolicyBindingList{}, ours)
}

// missing are why policies are not known to be in force, by their names. The plugin knows those of its own version.
func (p *policies) missing(c *doctor.Cluster) (map[string]string, error) {
	absent := facts.NoKind(p.mutating.Err) // before Kubernetes 1.36
	err := errors.Join(p.validating.Err, p.validatingBinding.Err)
	if !absent {
		err = errors.Join(err, p.mutating.Err, p.mutatingBinding.Err)
	}
	if err != nil {
		return nil, err
	}
	if runs := versionOf(c); runs == "" && c.Managers.Err == nil && len(c.Managers.Items) == 0 {
		return nil, nil // only the kinds are there
	} else if runs == "" {
		return nil, errors.New("neither an operator nor an agent has reported its version")
	} else if runs != version.Version {
		return nil, fmt.Errorf("the cluster has those of Hawser %s, and this plugin knows those of %s", runs, version.Version)
	}
	specs, err := shipped.Load()
	if err != nil {
		return nil, err
	}
	installed := map[shipped.Kind][2][]unstructured.Unstructured{
		shipped.Validating: {unstructuredOf(p.validating), unstructuredOf(p.validatingBinding)},
		shipped.Mutating:   {unstructuredOf(p.mutating), unstructuredOf(p.mutatingBinding)},
	}
	missing := map[string]string{}
	for _, policy := range shipped.Policies {
		if policy.Kind == shipped.Mutating && absent {
			continue
		}
		of := installed[policy.Kind]
		for i := range of {
			of[i] = slices.DeleteFunc(slices.Clone(of[i]), func(o unstructured.Unstructured) bool {
				return o.GetLabels()[shipped.Label] != policy.Name || o.GetDeletionTimestamp() != nil
			})
			for j := range of[i] {
				of[i][j].SetGroupVersionKind(policy.Kind[i])
			}
		}
		if problems := specs.Problems(policy, of); len(problems) > 0 {
			missing[policy.Name] = strings.Join(problems, "; ")
		}
	}
	return missing, nil
}

// versionOf Hawser as the operator or an agent reports it; empty if none does.
func versionOf(c *doctor.Cluster) string {
	for _, m := range c.Managers.Items {
		if m.Status.Version != "" {
			return m.Status.Version
		}
	}
	for _, state := range c.States.Items {
		if state.Status.AgentVersion != "" {
			return state.Status.AgentVersion
		}
	}
	return ""
}

// unstructuredOf converts objects. The API server names them in order.
func unstructuredOf[T any](list doctor.List[T]) []unstructured.Unstructured {
	var all []unstructured.Unstructured
	for _, object := range list.Items {
		// It only fails for types that cannot be JSON.
		content, _ := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		all = append(all, unstructured.Unstructured{Object: content})
	}
	return all
}
