/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package inline is the CSI node plugin volumes.hawser.io, through which pods use the volumes of intents.
//
//	kubelet --NodePublishVolume--> parse, refuse --> wait until the agent has published the intent
//	                                             --> record on disk --> bind into the pod's directory --> verify
//	        or, for intents by label,    --> record on disk --> directory --> a place for each publication
//	agent   --ReconcilePlace------> decide --> bind at the place, or unmount and remove the place
//	kubelet --NodeUnpublishVolume-> unmount --> remove the empty directory --> remove the record
//
// The plugin never stages and never calls a driver. It binds what the agent has published, and only while the agent's
// record and the mount table agree that it is the intent's volume. A publication is not undone while a pod bind of it
// is recorded; see record.PodBinds for how the two are ordered.
//
// NodeUnpublishVolume works from the record and the mount table alone, so the end of a pod needs no API server.
//
// A place in a directory is a pod bind too. Nothing that a process uses is taken away from a running pod, and no
// unmount is lazy: the kernel refuses one with EBUSY. Where its answer does not cover all uses, by what the pod's spec
// or the volume is, the volume stays until the pod has ended. What stays keeps its record, so its volume counts as used
// by the pod.
//
// A request comes from the kubelet, but its attributes come from the author of the pod. Only its own namespace, its own
// node and the name of an intent or a claim can be asked for, so no attribute can lead to a path.
package inline
