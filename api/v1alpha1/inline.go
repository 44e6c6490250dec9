/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package v1alpha1

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// A pod uses the volume of an intent through an inline CSI volume:
//
//	volumes:
//	- name: data
//	  csi:
//	    driver: volumes.hawser.io
//	    volumeAttributes: {claim: data}
const (
	// InlineDriver is the CSI driver that the agent serves for inline volumes of pods.
	InlineDriver = "volumes.hawser.io"
	// AttributeIntent names an intent of the pod's namespace, for the pod's node.
	AttributeIntent = "intent"
	// AttributeClaim names a claim of the pod's namespace. Hawser creates the intent, owned by the pod.
	AttributeClaim = "claim"
	// AttributeIntents is a label selector. The pod gets a directory in which each intent of its namespace and node that
	// has such labels has a subdirectory with its volume.
	AttributeIntents = "intents"
	// KubeletAttributes is the prefix of the attributes that the kubelet adds, with the pod's name, namespace and UID. It
	// replaces those that the author of a pod sets.
	KubeletAttributes = "csi.storage.k8s.io/"
	// PlacementGate is the scheduling gate of pods whose inline volumes restrict the nodes that they may run on. The
	// manager lifts it once the pod's node affinity has these restrictions.
	PlacementGate = "volumes.hawser.io/placement"
)

// Lengths of an object's name and of the hash in the name of a pod's intent.
const (
	nameLength = 253
	hashLength = 16
)

// PodIntentName is the name of the intent that Hawser creates for a volume of a pod that the kubelet mounts. It is
// made of the pod's name, the volume's, and a hash of the pod's UID and the volume's name, which alone would do.
func PodIntentName(pod string, uid types.UID, volume string) string {
	return podIntentName(pod+"-"+volume, string(uid)+"/"+volume)
}

// InlineIntentName is the name of the intent that Hawser creates for a claim that inline volumes of a pod name. It is
// one for all of them: a volume for a single user may be several volumes of one pod. No volume's name has a slash, so
// it is none of PodIntentName.
func InlineIntentName(pod string, uid types.UID, claim string) string {
	return podIntentName(pod+"-"+claim, string(uid)+"/claim/"+claim)
}

func podIntentName(name, identity string) string {
	h := sha256.Sum256([]byte(identity))
	name = name[:min(len(name), nameLength-hashLength-1)]
	// No part of a name ends with either of these.
	return strings.TrimRight(name, "-.") + "-" + hex.EncodeToString(h[:])[:hashLength]
}
