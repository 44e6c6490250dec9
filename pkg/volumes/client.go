/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package volumes

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/rest"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// Client of intents, and of what VolumesOfPod reads. NewForConfig makes one.
type Client struct {
	hawser, core rest.Interface
	parameters   runtime.ParameterCodec
}

// Intents is a client of client-go for the intents of a namespace. An empty namespace means all, for lists and watches.
type Intents = gentype.ClientWithList[*volumesv1alpha1.VolumeAttachmentIntent,
	*volumesv1alpha1.VolumeAttachmentIntentList]

// NewForConfig makes a client. config is not changed. It makes no request. With client-go, config comes from
// rest.InClusterConfig or clientcmd; with controller-runtime, from GetConfig of the manager.
func NewForConfig(config *rest.Config) (*Client, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(volumesv1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	connections, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("making the HTTP client: %w", err)
	}
	of := func(path string, version schema.GroupVersion) (rest.Interface, error) {
		c := rest.CopyConfig(config)
		c.APIPath, c.GroupVersion = path, &version
		c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
		c.ContentType, c.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
		if c.UserAgent == "" {
			c.UserAgent = rest.DefaultKubernetesUserAgent()
		}
		client, err := rest.RESTClientForConfigAndClient(c, connections)
		if err != nil {
			return nil, fmt.Errorf("making the client of %s: %w", version, err)
		}
		return client, nil
	}
	hawser, err := of("/apis", volumesv1alpha1.GroupVersion)
	if err != nil {
		return nil, err
	}
	core, err := of("/api", corev1.SchemeGroupVersion)
	if err != nil {
		return nil, err
	}
	return &Client{hawser: hawser, core: core, parameters: runtime.NewParameterCodec(scheme)}, nil
}

// Intents returns the client of client-go for the intents of a namespace.
func (c *Client) Intents(namespace string) *Intents {
	return gentype.NewClientWithList("volumeattachmentintents", c.hawser, c.parameters, namespace,
		func() *volumesv1alpha1.VolumeAttachmentIntent { return &volumesv1alpha1.VolumeAttachmentIntent{} },
		func() *volumesv1alpha1.VolumeAttachmentIntentList {
			return &volumesv1alpha1.VolumeAttachmentIntentList{}
		})
}

func (c *Client) claims(namespace string) *gentype.Client[*corev1.PersistentVolumeClaim] {
	return gentype.NewClient("persistentvolumeclaims", c.core, c.parameters, namespace,
		func() *corev1.PersistentVolumeClaim { return &corev1.PersistentVolumeClaim{} })
}

func (c *Client) persistentVolumes() *gentype.Client[*corev1.PersistentVolume] {
	return gentype.NewClient("persistentvolumes", c.core, c.parameters, "",
		func() *corev1.PersistentVolume { return &corev1.PersistentVolume{} })
}
