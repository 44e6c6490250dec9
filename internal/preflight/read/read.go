/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package read reads a cluster for package preflight: one list for each kind, in pages, several at once, reviews of the
// user's rights, and dry runs, which change nothing. What may not be read keeps its error, and the rest is read all the
// same.
package read

import (
	"context"
	"errors"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/explain/facts"
	"github.com/hawser-io/hawser/internal/pages"
	"github.com/hawser-io/hawser/internal/preflight"
)

// Server is an API server.
type Server interface {
	facts.Reader
	client.Writer
}

// Cluster reads a cluster in which Hawser is to have the namespace system. If the context ends, what was read until
// then comes with the context's error.
func Cluster(ctx context.Context, s Server, c kubernetes.Interface, system string) (*preflight.Facts, error) {
	release, err := preflight.Load()
	if err != nil {
		return nil, err
	}
	f := &preflight.Facts{Release: release, System: system, Errs: map[string]error{}}
	d := discovery.ToDiscoveryInterfaceWithContext(c.Discovery())
	version, err := d.ServerVersionWithContext(ctx)
	switch {
	case err == nil:
		f.Version = version.GitVersion
	case apierrors.IsForbidden(err):
		f.Errs[preflight.KindVersion] = err
	default:
		return nil, err
	}
	discover(ctx, f, d)
	all := pages.New(ctx, s, trim)
	lists(all, f)
	all.Go(func() { f.Attachments.Items, f.Attachments.Err = s.Attachments(ctx) })
	t := &trials{ctx: ctx, server: s, clientset: c, facts: f}
	t.run(&all.WaitGroup)
	all.Wait()
	if f.Installed {
		f.InstalledVersion = installedVersion(ctx, s)
	}
	return f, ctx.Err()
}

// lists are all kinds of which every object counts.
func lists(all *pages.Reads, f *preflight.Facts) {
	pages.Read(all, &f.Nodes, &corev1.NodeList{})
	pages.Read(all, &f.CSINodes, &storagev1.CSINodeList{})
	pages.Read(all, &f.Drivers, &storagev1.CSIDriverList{})
	pages.Read(all, &f.Volumes, &corev1.PersistentVolumeList{})
	pages.Read(all, &f.DaemonSets, &appsv1.DaemonSetList{})
	pages.Read(all, &f.Deployments, &appsv1.DeploymentList{})
	pages.Read(all, &f.StatefulSets, &appsv1.StatefulSetList{})
	pages.Read(all, &f.Attachers, &coordinationv1.LeaseList{})
	pages.Read(all, &f.ControlPlane, &corev1.PodList{}, client.InNamespace(metav1.NamespaceSystem),
		client.MatchingLabels{"tier": "control-plane"})
	pages.Read(all, &f.Endpoints, &discoveryv1.EndpointSliceList{}, client.InNamespace(metav1.NamespaceDefault),
		client.MatchingLabels{discoveryv1.LabelServiceName: "kubernetes"})
}

// discover reads what the API server serves. Groups of which their own servers do not answer leave the others.
func discover(ctx context.Context, f *preflight.Facts, d discovery.DiscoveryInterfaceWithContext) {
	_, resources, err := d.ServerGroupsAndResourcesWithContext(ctx)
	var failed *discovery.ErrGroupDiscoveryFailed
	switch {
	case errors.As(err, &failed):
		for gv := range failed.Groups {
			f.Unavailable = append(f.Unavailable, gv.Version+"."+gv.Group) // as its APIService is named
		}
		slices.Sort(f.Unavailable)
	case err != nil:
		f.Errs[preflight.KindDiscovery] = err
		return
	}
	f.Served = map[schema.GroupVersionKind]bool{}
	for _, list := range resources {
		for i := range list.APIResources {
			gvk := schema.FromAPIVersionAndKind(list.GroupVersion, list.APIResources[i].Kind)
			f.Served[gvk] = true
			f.Installed = f.Installed || gvk.Group == volumesv1alpha1.GroupVersion.Group
		}
	}
}

// installedVersion is what the operator or an agent reports; empty if neither does.
func installedVersion(ctx context.Context, s Server) string {
	var managers volumesv1alpha1.VolumeManagerList
	if err := s.List(ctx, &managers); err == nil && len(managers.Items) > 0 && managers.Items[0].Status.Version != "" {
		return managers.Items[0].Status.Version
	}
	var states volumesv1alpha1.NodeVolumeStateList
	if err := s.List(ctx, &states, client.Limit(1)); err == nil && len(states.Items) > 0 {
		return states.Items[0].Status.AgentVersion
	}
	return ""
}
