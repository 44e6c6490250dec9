/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package operator

import (
	"context"
	"errors"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/operator/render"
)

// InitialSpecVariable is the environment variable with the spec of the VolumeManager that the operator makes.
const InitialSpecVariable = "INITIAL_SPEC"

// ParseInitialSpec reads a spec in YAML or JSON. A field that VolumeManager does not have is an error: the API server
// would drop it.
func ParseInitialSpec(text string) (map[string]any, error) {
	spec, err := parseSpec(text)
	if err != nil {
		return nil, fmt.Errorf("the environment variable %s must be a spec of VolumeManager in YAML: %w",
			InitialSpecVariable, err)
	}
	return spec, nil
}

// parseSpec returns what is sent as it was written: the type would leave out an empty list, which differs from none.
func parseSpec(text string) (map[string]any, error) {
	data, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		return nil, err
	}
	unknown, err := json.UnmarshalStrict(data, &volumesv1alpha1.VolumeManagerSpec{})
	if err := errors.Join(append(unknown, err)...); err != nil {
		return nil, err
	}
	var spec map[string]any
	err = json.UnmarshalCaseSensitivePreserveInts(data, &spec)
	return spec, err
}

// creator makes the VolumeManager.
type creator struct{ *Reconciler }

// create makes the VolumeManager, unless the operator has installed before. One for an installation that kubectl made
// continues that.
func (c creator) create(ctx context.Context) error {
	own := &appsv1.Deployment{}
	if _, err := c.readLive(ctx, operatorName, own); err != nil {
		return err
	}
	if own.Annotations[volumesv1alpha1.RemovedAnnotation] != "" {
		c.started = true
		return nil
	}
	deployment, daemonSet, policy := &appsv1.Deployment{}, &appsv1.DaemonSet{}, &networkingv1.NetworkPolicy{}
	found := map[client.Object]bool{}
	for object, name := range map[client.Object]string{
		deployment: render.ManagerName, daemonSet: render.AgentName, policy: render.NetworkPolicyName} {
		var err error
		if found[object], err = c.readLive(ctx, name, object); err != nil {
			return err
		}
	}
	switch {
	case deployment.Labels[render.ManagedByLabel] == render.ManagedBy:
		c.started = true
		return nil
	case !found[deployment] && !found[daemonSet]:
		return c.createInitial(ctx, own)
	}
	spec := render.Adopted(deployment, daemonSet)
	if !found[policy] {
		spec.NetworkPolicy = volumesv1alpha1.ManagedNone
	}
	return c.createAdopted(ctx, own, spec)
}

// createAdopted makes the VolumeManager that continues an installation. If the API server refuses it, an
// administrator corrects a flag or makes the VolumeManager. The pods that are replaced for the flag lead here again.
func (c creator) createAdopted(ctx context.Context, own *appsv1.Deployment,
	spec volumesv1alpha1.VolumeManagerSpec) error {
	fields, err := written(spec)
	if err != nil {
		return fmt.Errorf("encoding the VolumeManager: %w", err)
	}
	err = c.Client.Create(ctx, newVolumeManager(fields))
	if !apierrors.IsInvalid(err) {
		if client.IgnoreAlreadyExists(err) != nil {
			return fmt.Errorf("creating the VolumeManager: %w", err)
		}
		return nil
	}
	what := "the installation"
	if flags := render.Refused(causes(err)); len(flags) > 0 {
		what = strings.Join(flags, ", ")
	}
	return c.refuse(own, "AdoptedSpecInvalid", fmt.Errorf("an installation without the operator is found, but "+
		"it makes no valid spec of VolumeManager. Correct %s, or create VolumeManager cluster: %w", what, err))
}

func causes(err error) []metav1.StatusCause {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return nil
	}
	return status.Status().Details.Causes
}

// refuse ends the attempts to make a VolumeManager. There is none that could have a condition, so the operator's
// Deployment gets an event.
func (c creator) refuse(own *appsv1.Deployment, reason string, err error) error {
	if own.UID != "" {
		c.Recorder.Eventf(own, nil, corev1.EventTypeWarning, reason, "Create", "%.1000v", err)
	}
	return reconcile.TerminalError(err)
}

// written returns the spec as it is sent. The type leaves out an empty list of tolerations, which means none of them.
func written(spec volumesv1alpha1.VolumeManagerSpec) (map[string]any, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&spec)
	if err == nil && spec.Tolerations != nil && len(spec.Tolerations) == 0 {
		fields["tolerations"] = []any{}
	}
	return fields, err
}

func newVolumeManager(spec map[string]any) *unstructured.Unstructured {
	vm := &unstructured.Unstructured{Object: map[string]any{}}
	vm.SetGroupVersionKind(volumesv1alpha1.GroupVersion.WithKind("VolumeManager"))
	vm.SetName(volumesv1alpha1.VolumeManagerName)
	if len(spec) > 0 {
		vm.Object["spec"] = spec
	}
	return vm
}

func (c creator) readLive(ctx context.Context, name string, object client.Object) (bool, error) {
	err := c.Live.Get(ctx, types.NamespacedName{Namespace: c.Namespace, Name: name}, object)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading %s: %w", name, err)
	}
	return err == nil, nil
}

// createInitial makes the VolumeManager with the initial spec. If the API server refuses it, only another environment
// variable helps, and that is another process.
func (c creator) createInitial(ctx context.Context, own *appsv1.Deployment) error {
	err := c.Client.Create(ctx, newVolumeManager(c.InitialSpec))
	if apierrors.IsInvalid(err) {
		return c.refuse(own, "InitialSpecInvalid", fmt.Errorf("the environment variable %s is not a valid spec of "+
			"VolumeManager: %w", InitialSpecVariable, err))
	}
	if client.IgnoreAlreadyExists(err) != nil {
		return fmt.Errorf("creating the VolumeManager: %w", err)
	}
	return nil
}
