/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package volumes is for programs that put volumes on nodes with Hawser, or that need to know which volumes a pod has.
//
// It needs only the rights of its caller: get, list and watch of volumeattachmentintents, and for VolumesOfPod get of
// persistentvolumeclaims and persistentvolumes. Nothing in it writes. All functions are safe for concurrent use, and
// calling one again is harmless.
//
// A client for it has to know the kinds of Kubernetes and of Hawser:
//
//	scheme := runtime.NewScheme()
//	err := errors.Join(clientgoscheme.AddToScheme(scheme), volumesv1alpha1.AddToScheme(scheme))
package volumes
