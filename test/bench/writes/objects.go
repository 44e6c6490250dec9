/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package writes

import (
	"context"
	"fmt"

	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/apiserver"
	"github.com/hawser-io/hawser/test/bench/attach/cluster"
	"github.com/hawser-io/hawser/test/bench/attach/stage"
)

// perNode is how many volumes a state lists.
const perNode = 20

// objects that are written, one of each kind for each write of a round.
type objects struct {
	client client.WithWatch
	// cbor writes intents in that encoding, where the API server takes it.
	cbor        rest.Interface
	attachments []*storagev1.VolumeAttachment
	intents     []*volumesv1alpha1.VolumeAttachmentIntent
	states      []*volumesv1alpha1.NodeVolumeState
}

func create(ctx context.Context, c *cluster.Cluster, count int) (*objects, error) {
	o := &objects{}
	if err := o.connect(c.Instruments()); err != nil {
		return nil, err
	}
	s := stage.New(o.client, 1)
	for i, v := range s.Plan(count, 1) {
		o.attachments = append(o.attachments, &storagev1.VolumeAttachment{
			ObjectMeta: metav1.ObjectMeta{Name: v.Attachment},
			Spec: storagev1.VolumeAttachmentSpec{Attacher: stage.DriverName, NodeName: v.Node,
				Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &v.Name}},
		})
		o.intents = append(o.intents, v.Intent())
		o.states = append(o.states, state(i))
	}
	for i := range o.intents {
		for _, object := range []client.Object{o.attachments[i], o.intents[i], o.states[i]} {
			if err := o.client.Create(ctx, object); err != nil {
				return nil, fmt.Errorf("creating %T %s: %w", object, object.GetName(), err)
			}
		}
	}
	return o, nil
}

func (o *objects) connect(config *rest.Config) (err error) {
	scheme := apiserver.Scheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		return fmt.Errorf("building the scheme: %w", err)
	}
	if o.client, err = client.NewWithWatch(config, client.Options{Scheme: scheme}); err != nil {
		return fmt.Errorf("creating a client: %w", err)
	}
	config.GroupVersion, config.APIPath = &volumesv1alpha1.GroupVersion, "/apis"
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme,
		serializer.WithSerializer(cbor.NewSerializerInfo)).WithoutConversion()
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeCBOR, runtime.ContentTypeCBOR
	if o.cbor, err = rest.RESTClientFor(config); err != nil {
		return fmt.Errorf("creating a client for CBOR: %w", err)
	}
	return nil
}

func state(i int) *volumesv1alpha1.NodeVolumeState {
	nvs := &volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("state-%05d", i)}}
	for j := range perNode {
		name := fmt.Sprintf("volume-%05d-%02d", i, j)
		nvs.Spec.Attachments = append(nvs.Spec.Attachments, volumesv1alpha1.NodeAttachment{
			VolumeName: "kubernetes.io/csi/" + stage.DriverName + "^" + name, State: volumesv1alpha1.AttachmentAttached,
			AttachmentUID: types.UID(name), AttachmentName: name, Driver: stage.DriverName, VolumeHandle: name,
			PersistentVolumeName: name, FSType: "ext4",
		})
	}
	return nvs
}

// report is what the manager writes of an intent once its volume is attached.
func report(i *volumesv1alpha1.VolumeAttachmentIntent, round, conditions int) {
	now := metav1.NowMicro()
	i.Status.UniqueVolumeName = "kubernetes.io/csi/" + stage.DriverName + "^handle-" + i.Name
	i.Status.VolumeName, i.Status.VolumeUID = i.Name, "5b8b0a86-8a34-4c5c-9f4b-000000000000"
	i.Status.ClaimUID = "5b8b0a86-8a34-4c5c-9f4b-000000000001"
	i.Status.Timeline = &volumesv1alpha1.Timeline{Requested: &now, Attached: &now}
	i.Status.Conditions = nil
	for _, c := range []metav1.Condition{
		{Type: volumesv1alpha1.ConditionResolved, Reason: volumesv1alpha1.ReasonResolved,
			Message: "the claim is bound to volume " + i.Name},
		{Type: volumesv1alpha1.ConditionAttached, Reason: volumesv1alpha1.ReasonAttached,
			Message: fmt.Sprintf("the volume is attached, round %d", round)},
		{Type: volumesv1alpha1.ConditionReady, Reason: volumesv1alpha1.ReasonReady, Message: "the volume is attached"},
	}[:conditions] {
		c.Status, c.ObservedGeneration, c.LastTransitionTime = metav1.ConditionTrue, i.Generation, metav1.Now()
		i.Status.Conditions = append(i.Status.Conditions, c)
	}
}
