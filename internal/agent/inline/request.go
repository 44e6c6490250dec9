/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package inline

import (
	"maps"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/record"
)

// Keys of the volume context that the kubelet sets; the author of a pod cannot. Later kubelets may add others under
// the prefix.
const (
	kubeletPrefix = volumesv1alpha1.KubeletAttributes
	podNamespace  = kubeletPrefix + "pod.namespace"
	podName       = kubeletPrefix + "pod.name"
	podUID        = kubeletPrefix + "pod.uid"
	ephemeral     = kubeletPrefix + "ephemeral"
)

// request is what a pod asks for.
type request struct {
	pod record.PodReference
	// intent whose volume the pod is to get. For a claim it is the one that the manager creates for the pod.
	intent types.NamespacedName
	// claim that the pod names; empty where it names an intent.
	claim    string
	target   string
	readOnly bool
}

// parse returns what the pod asks for. It refuses whatever has no meaning, so that nothing is ignored by accident.
func parse(paths record.Paths, req *csi.NodePublishVolumeRequest) (request, error) {
	attributes := req.GetVolumeContext()
	r := request{target: req.GetTargetPath(), readOnly: req.GetReadonly(), pod: record.PodReference{
		Namespace: attributes[podNamespace], Name: attributes[podName], UID: types.UID(attributes[podUID])}}
	if err := checkShape(req); err != nil {
		return r, err
	}
	if r.pod.Namespace == "" || r.pod.Name == "" || r.pod.UID == "" || attributes[ephemeral] != "true" {
		return r, invalid("the request does not name the pod of an inline volume; the CSIDriver %s needs "+
			"podInfoOnMount and volumeLifecycleModes [Ephemeral]", volumesv1alpha1.InlineDriver)
	}
	pod, ok := paths.PodOfVolume(r.target)
	if !ok || pod != r.pod.UID {
		return r, invalid("the target path %s is not that of a CSI volume of pod %s below %s", r.target, r.pod.UID,
			paths.Kubelet)
	}
	attribute, name, err := wanted(attributes)
	if err != nil {
		return r, err
	}
	r.intent = types.NamespacedName{Namespace: r.pod.Namespace, Name: name}
	if attribute == volumesv1alpha1.AttributeClaim {
		r.claim = name
		r.intent.Name = volumesv1alpha1.InlineIntentName(r.pod.Name, r.pod.UID, name)
	}
	return r, nil
}

// checkShape refuses requests that are not complete, and fields of the pod's volume that have no effect.
func checkShape(req *csi.NodePublishVolumeRequest) error {
	switch capability := req.GetVolumeCapability(); {
	case req.GetVolumeId() == "":
		return invalid("the volume ID is missing")
	case req.GetTargetPath() == "":
		return invalid("the target path is missing")
	case capability == nil:
		return invalid("the volume capability is missing")
	case capability.GetBlock() != nil:
		return invalid("inline volumes have filesystems only; a pod gets a raw block device from a claim")
	case capability.GetMount().GetFsType() != "":
		return invalid("csi.fsType has no effect: the volume has the filesystem of its PersistentVolume")
	case len(req.GetSecrets()) > 0:
		return invalid("csi.nodePublishSecretRef has no effect: the PersistentVolume names the Secrets of its volume")
	}
	return nil
}

// wanted returns the one attribute that names what the pod is to get.
func wanted(attributes map[string]string) (attribute, name string, err error) {
	for _, key := range slices.Sorted(maps.Keys(attributes)) {
		switch {
		case strings.HasPrefix(key, kubeletPrefix):
			continue
		case key != volumesv1alpha1.AttributeIntent && key != volumesv1alpha1.AttributeClaim:
			return "", "", invalid("volumeAttributes has the unknown attribute %q; known are %s and %s", key,
				volumesv1alpha1.AttributeIntent, volumesv1alpha1.AttributeClaim)
		case attribute != "":
			return "", "", invalid("volumeAttributes names both an intent and a claim; name one of them")
		}
		attribute, name = key, attributes[key]
	}
	if attribute == "" {
		return "", "", invalid("volumeAttributes names neither an intent (%s) nor a claim (%s) of the pod's namespace",
			volumesv1alpha1.AttributeIntent, volumesv1alpha1.AttributeClaim)
	}
	if wrong := validation.IsDNS1123Subdomain(name); len(wrong) > 0 {
		return "", "", invalid("the attribute %s is not a name: %q; it names an object of the pod's own namespace",
			attribute, name)
	}
	return attribute, name, nil
}

func invalid(format string, args ...any) error {
	return status.Errorf(codes.InvalidArgument, format, args...)
}

// refused is the error for what does not come about by waiting.
func refused(format string, args ...any) error {
	return status.Errorf(codes.FailedPrecondition, format, args...)
}
