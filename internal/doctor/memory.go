/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package doctor

import (
	"context"
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/explain/facts"
)

// memory answers the reads of package facts from what was read of the cluster. What it returns must not be changed.
type memory struct {
	*index
	attachments []facts.Attachment
}

var _ facts.Reader = (*memory)(nil)

func newMemory(i *index) *memory {
	m := &memory{index: i}
	for _, va := range i.c.Attachments.Items {
		m.attachments = append(m.attachments, facts.Attachment{Name: va.Name, Driver: va.Spec.Attacher,
			Node: va.Spec.NodeName, Volume: ptr.Deref(va.Spec.Source.PersistentVolumeName, ""),
			Attached: va.Status.Attached})
	}
	return m
}

// Installed reports whether Hawser is installed.
func (m *memory) Installed(context.Context) (bool, error) { return m.c.Installed, nil }

// Attachments are all VolumeAttachments.
func (m *memory) Attachments(context.Context) ([]facts.Attachment, error) {
	return m.attachments, m.c.Attachments.Err
}

// Get returns an object, which shares all that it refers to. Where its kind could not be read, or not in its namespace,
// it returns why. Locks are not read: one stays with its last holder, so it decides nothing where attachments are
// known.
func (m *memory) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	kind := reflect.TypeOf(into).Elem().Name()
	if _, metadata := into.(*metav1.PartialObjectMetadata); metadata {
		kind = into.GetObjectKind().GroupVersionKind().Kind
		if err, read := m.c.Missing[facts.Ref{Kind: kind, Namespace: key.Namespace, Name: key.Name}]; read {
			return err
		}
		return apierrors.NewMethodNotSupported(schema.GroupResource{Resource: kind}, "get") // it was not listed
	}
	resource := schema.GroupResource{Resource: kind}
	if err := m.errs[kind]; err != nil {
		return err
	}
	if !m.within(key) {
		return apierrors.NewForbidden(resource, key.Name, fmt.Errorf("namespace %s alone was read", m.c.Namespace))
	}
	object, found := m.objects[kind][key]
	if !found {
		return apierrors.NewNotFound(resource, key.Name)
	}
	reflect.ValueOf(into).Elem().Set(reflect.ValueOf(object).Elem())
	return nil
}

// List selects from the objects by the fields and labels that package facts asks for.
func (m *memory) List(_ context.Context, into client.ObjectList, options ...client.ListOption) error {
	given := (&client.ListOptions{}).ApplyOptions(options)
	switch into := into.(type) {
	case *corev1.EventList:
		into.Items = values(m.events[field(given, "involvedObject.uid")])
		return m.c.Events.Err
	case *corev1.PodList:
		for _, pod := range m.podsOn[field(given, "spec.nodeName")] {
			if phase := field(given, "status.phase"); phase == "" || phase == string(pod.Status.Phase) {
				into.Items = append(into.Items, *pod)
			}
		}
		return m.c.Pods.Err
	case *volumesv1alpha1.VolumeAttachmentIntentList:
		for _, intent := range m.candidates(given) {
			if matches(given, intent) {
				into.Items = append(into.Items, *intent)
			}
		}
		return m.c.Intents.Err
	}
	return apierrors.NewMethodNotSupported(schema.GroupResource{Resource: fmt.Sprintf("%T", into)}, "list")
}

// candidates are the intents of the index that selects the fewest.
func (m *memory) candidates(o *client.ListOptions) []*volumesv1alpha1.VolumeAttachmentIntent {
	if pv := field(o, "status.volumeName"); pv != "" {
		return m.intentsOf[pv]
	}
	if node := field(o, "spec.nodeName"); node != "" {
		return m.intentsOn[node]
	}
	if o.LabelSelector != nil {
		if uid, ok := o.LabelSelector.RequiresExactMatch(volumesv1alpha1.PodUIDLabel); ok {
			return m.intentsOfPod[uid]
		}
	}
	return m.c.Intents.Items
}

func matches(o *client.ListOptions, intent *volumesv1alpha1.VolumeAttachmentIntent) bool {
	set := fields.Set{"spec.nodeName": intent.Spec.NodeName, "status.volumeName": intent.Status.VolumeName}
	return (o.Namespace == "" || o.Namespace == intent.Namespace) &&
		(o.FieldSelector == nil || o.FieldSelector.Matches(set)) &&
		(o.LabelSelector == nil || o.LabelSelector.Matches(labels.Set(intent.Labels)))
}

func field(o *client.ListOptions, name string) string {
	if o.FieldSelector == nil {
		return ""
	}
	value, _ := o.FieldSelector.RequiresExactMatch(name) // none is empty
	return value
}

func values[T any](list []*T) []T {
	copies := make([]T, 0, len(list))
	for _, item := range list {
		copies = append(copies, *item)
	}
	return copies
}
