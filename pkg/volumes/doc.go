/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package volumes is for programs that put volumes on nodes with Hawser, or that need to know which volumes a pod has.
// It is a Go module of its own and requires client-go and the module github.com/hawser-io/hawser/api.
//
// # Calls
//
// CreateAndWait creates an intent and returns it once its volume is on the node. DeleteAndWait deletes an intent and
// returns once it is gone. Create and WaitForReady are the two parts of CreateAndWait. VolumesOfPod lists the volumes
// of a pod. Intents is the ordinary client of client-go for everything else.
//
// All calls are safe for concurrent use. Waits watch and do not poll, and have no deadline other than that of their
// context. A wait that its context has ended changes nothing: the same call goes on waiting.
//
// # Idempotency
//
// Every call may be repeated with the same arguments, also by another process. Create accepts an intent that exists if
// it has the same spec and the same controller. It never changes an intent. DeleteAndWait succeeds if there is no
// intent.
//
// # Errors
//
// An *Error is about the intent. It has the condition and the reason that the API names, or one of the reasons of this
// package. Message is for people. All reasons of conditions are constants of the package v1alpha1 of the API:
//
//	switch volumes.ReasonOf(err) {
//	case volumesv1alpha1.ReasonVolumeInUse: // another node has the volume
//	case volumes.ReasonExists: // another program has an intent with this name
//	}
//
// Error.Stalled reports whether a retry is useless. Every other error is one of the API server, wrapped: the functions
// of k8s.io/apimachinery/pkg/api/errors recognize it.
//
// # Units
//
// status.capacity of an intent is in bytes. spec.detachPolicy.forceAfter is a duration from 1m to 720h.
// spec.mount.fsGroup and SupplementalGroup are numbers of groups. Paths are those of the node's own mount namespace.
// Timestamps are those of the API, with microseconds where it has them.
//
// # Rights
//
// A caller needs get, list and watch of volumeattachmentintents, create and delete for the calls of that name, and for
// VolumesOfPod get of persistentvolumeclaims and persistentvolumes.
package volumes
