/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	sigsyaml "sigs.k8s.io/yaml"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/explain/facts"
	"github.com/hawser-io/hawser/internal/explain/server"
)

// fileObject is one object of a file; object is nil if its kind is not analysed.
type fileObject struct {
	ref    facts.Ref
	object client.Object
}

// readFiles reads every object. A field that does not exist is an error, as it is for the API server.
func readFiles(files []string, stdin io.Reader, namespace string) ([]fileObject, error) {
	var objects []fileObject
	for _, file := range files {
		found, err := readFile(file, stdin, namespace)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", file, err)
		}
		objects = append(objects, found...)
	}
	return objects, nil
}

func readFile(name string, stdin io.Reader, namespace string) ([]fileObject, error) {
	in := stdin
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer func() { _ = file.Close() }()
		in = file
	}
	decoder := serializer.NewCodecFactory(server.NewScheme(), serializer.EnableStrict).UniversalDeserializer()
	documents := yaml.NewYAMLReader(bufio.NewReader(in))
	var objects []fileObject
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		o, err := decode(decoder, document, namespace)
		if err != nil {
			return nil, err
		}
		if o != nil {
			objects = append(objects, *o)
		}
	}
}

// decode reads one document; nil if it is empty.
func decode(decoder k8sruntime.Decoder, document []byte, namespace string) (*fileObject, error) {
	text, err := sigsyaml.YAMLToJSON(document)
	if err != nil {
		return nil, err
	}
	if string(text) == "null" {
		return nil, nil
	}
	object, gvk, err := decoder.Decode(text, nil, nil)
	if k8sruntime.IsNotRegisteredError(err) {
		return &fileObject{ref: facts.Ref{Kind: gvk.Kind}}, nil
	}
	if err != nil {
		return nil, err
	}
	return located(object, gvk, namespace), nil
}

// located gives an object its namespace.
func located(object k8sruntime.Object, gvk *schema.GroupVersionKind, namespace string) *fileObject {
	o, ok := object.(client.Object)
	if !ok {
		return &fileObject{ref: facts.Ref{Kind: gvk.Kind}}
	}
	f := &fileObject{ref: facts.Ref{Kind: gvk.Kind, Namespace: o.GetNamespace(), Name: o.GetName()}}
	switch o.(type) {
	case *corev1.Pod, *corev1.PersistentVolumeClaim, *volumesv1alpha1.VolumeAttachmentIntent:
		if f.ref.Namespace == "" {
			f.ref.Namespace = namespace
			o.SetNamespace(namespace)
		}
		f.object = o
	case *corev1.PersistentVolume:
		f.object = o
	}
	return f
}

// overlaid is a cluster as it would be with the objects of the files.
type overlaid struct {
	facts.Reader
	objects map[string]client.Object
}

func overlay(under facts.Reader, objects []fileObject) facts.Reader {
	o := &overlaid{under, map[string]client.Object{}}
	for _, f := range objects {
		if f.object != nil {
			o.objects[key(f.object, f.ref.Namespace, f.ref.Name)] = f.object
		}
	}
	return o
}

func key(object client.Object, namespace, name string) string {
	return fmt.Sprintf("%T %s/%s", object, namespace, name)
}

// Get prefers the object of a file.
func (o *overlaid) Get(ctx context.Context, at client.ObjectKey, into client.Object, options ...client.GetOption,
) error {
	file, ok := o.objects[key(into, at.Namespace, at.Name)]
	if !ok {
		return o.Reader.Get(ctx, at, into, options...)
	}
	switch into := into.(type) {
	case *corev1.Pod:
		file.(*corev1.Pod).DeepCopyInto(into)
	case *corev1.PersistentVolumeClaim:
		file.(*corev1.PersistentVolumeClaim).DeepCopyInto(into)
	case *corev1.PersistentVolume:
		file.(*corev1.PersistentVolume).DeepCopyInto(into)
	case *volumesv1alpha1.VolumeAttachmentIntent:
		file.(*volumesv1alpha1.VolumeAttachmentIntent).DeepCopyInto(into)
	}
	return nil
}

// applied is the version of a file's object that the cluster has; nil if it has none, or the user may not read it.
func applied(ctx context.Context, r facts.Reader, f fileObject) (client.Object, error) {
	into := f.object.DeepCopyObject().(client.Object)
	err := r.Get(ctx, client.ObjectKeyFromObject(f.object), into)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return into, nil
}
