/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package operator

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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

// create makes the VolumeManager, unless the operator has installed before. Where an installation is found that was
// made without the operator, an administrator makes the VolumeManager: only a person knows what the spec has to have
// for nothing to change, the attach mode above all.
func (c creator) create(ctx context.Context) error {
	own := &appsv1.Deployment{}
	if _, err := c.readLive(ctx, operatorName, own); err != nil {
		return err
	}
	if own.Annotations[volumesv1alpha1.RemovedAnnotation] != "" {
		c.started = true
		return nil
	}
	manager, agent := &appsv1.Deployment{}, &appsv1.DaemonSet{}
	managed, err := c.readLive(ctx, render.ManagerName, manager)
	if err != nil {
		return err
	}
	served, err := c.readLive(ctx, render.AgentName, agent)
	switch {
	case err != nil:
		return err
	case manager.Labels[render.ManagedByLabel] == render.ManagedBy:
		c.started = true
		return nil
	case managed || served:
		return c.refuse(own, "InstallationFound", errors.New("an installation without the operator is found. Create "+
			"VolumeManager cluster with the attach mode and the other settings of that installation"))
	}
	return c.createInitial(ctx, own)
}

// refuse ends the attempts to make a VolumeManager. There is none that could have a condition, so the operator's
// Deployment gets an event.
func (c creator) refuse(own *appsv1.Deployment, reason string, err error) error {
	if own.UID != "" {
		c.Recorder.Eventf(own, nil, corev1.EventTypeWarning, reason, "Create", "%.1000v", err)
	}
	return reconcile.TerminalError(err)
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
