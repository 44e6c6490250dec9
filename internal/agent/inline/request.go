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
	"k8s.io/apimachinery/pkg/labels"
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
	claim string
	// selector of the intents that a directory is to show; nil where the pod names an intent or a claim.
	selector labels.Selector
	target   string
	// directory in which the target is a place; empty where the target is the whole volume of the pod.
	directory string
	readOnly  bool
}

// parse returns what the pod asks for. It refuses whatever has no meaning, so that nothing is ignored by accident.
func parse(paths record.Paths, req *csi.NodePublishVolumeRequest) (request, error) {
	given := req.GetVolumeContext()
	r := request{target: req.GetTargetPath(), readOnly: req.GetReadonly(), pod: record.PodReference{
		Namespace: given[podNamespace], Name: given[podName], UID: types.UID(given[podUID])}}
	if err := checkShape(req); err != nil {
		return r, err
	}
	if r.pod.Namespace == "" || r.pod.Name == "" || r.pod.UID == "" || given[ephemeral] != "true" {
		return r, invalid("the request does not name the pod of an inline volume; the CSIDriver %s needs "+
			"podInfoOnMount and volumeLifecycleModes [Ephemeral]", volumesv1alpha1.InlineDriver)
	}
	pod, ok := paths.PodOfVolume(r.target)
	if !ok || pod != r.pod.UID {
		return r, invalid("the target path %s is not that of a CSI volume of pod %s below %s", r.target, r.pod.UID,
			paths.Kubelet)
	}
	attribute, name, err := wanted(given)
	if err != nil {
		return r, err
	}
	if attribute == volumesv1alpha1.AttributeIntents {
		r.selector, err = parseSelector(name)
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
	case slices.ContainsFunc(slices.Collect(maps.Keys(req.GetSecrets())), ofThePod):
		return invalid("csi.nodePublishSecretRef has no effect: the PersistentVolume names the Secrets of its volume")
	}
	return nil
}

// ofThePod reports whether the author of the pod has set a key. The kubelet adds keys of its own: tokens of the pod's
// service account among the Secrets, where the CSIDriver has tokenRequests and serviceAccountTokenInSecrets, and
// otherwise in the volume context. The plugin needs none.
func ofThePod(key string) bool { return !strings.HasPrefix(key, kubeletPrefix) }

// attributes that say what the pod is to get. It names one of them.
var attributes = []string{volumesv1alpha1.AttributeIntent, volumesv1alpha1.AttributeClaim,
	volumesv1alpha1.AttributeIntents}

// wanted returns the one attribute that names what the pod is to get.
func wanted(given map[string]string) (attribute, value string, err error) {
	for _, key := range slices.Sorted(maps.Keys(given)) {
		switch {
		case !ofThePod(key):
			continue
		case !slices.Contains(attributes, key):
			return "", "", invalid("volumeAttributes has the unknown attribute %q; known are %s", key,
				strings.Join(attributes, ", "))
		case attribute != "":
			return "", "", invalid("volumeAttributes has both %s and %s; name one of them", attribute, key)
		}
		attribute, value = key, given[key]
	}
	if attribute == "" {
		return "", "", invalid("volumeAttributes names neither an intent (%s) nor a claim (%s) of the pod's namespace, and "+
			"has no selector of intents (%s)", volumesv1alpha1.AttributeIntent, volumesv1alpha1.AttributeClaim,
			volumesv1alpha1.AttributeIntents)
	}
	if attribute == volumesv1alpha1.AttributeIntents {
		return attribute, value, nil
	}
	if wrong := validation.IsDNS1123Subdomain(value); len(wrong) > 0 {
		return "", "", invalid("the attribute %s is not a name: %q; it names an object of the pod's own namespace",
			attribute, value)
	}
	return attribute, value, nil
}

// parseSelector refuses a selector that selects every intent: that is rarely meant.
func parseSelector(text string) (labels.Selector, error) {
	selector, err := labels.Parse(text)
	if err != nil {
		return nil, invalid("the attribute %s is not a label selector: %v", volumesv1alpha1.AttributeIntents, err)
	}
	if selector.Empty() {
		return nil, invalid("the attribute %s is an empty selector; write the labels of the intents, for instance app=db",
			volumesv1alpha1.AttributeIntents)
	}
	return selector, nil
}

func invalid(format string, args ...any) error {
	return status.Errorf(codes.InvalidArgument, format, args...)
}

// refused is the error for what does not come about by waiting.
func refused(format string, args ...any) error {
	return status.Errorf(codes.FailedPrecondition, format, args...)
}
