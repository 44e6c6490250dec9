/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package facts

import (
	"context"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Kinds of the objects that events name.
const (
	KindSecret    = "Secret"
	KindConfigMap = "ConfigMap"
)

var (
	notFound    = regexp.MustCompile(`(configmap|secret)s? "([^"]+)" not found`)
	inNamespace = regexp.MustCompile(`in the namespace (\S+) with error`)
)

// NotFoundIn is the Secret or ConfigMap that a message of a kubelet names as not found, in the namespace of the pod
// unless the message has another one.
func NotFoundIn(message, namespace string) (Ref, bool) {
	named := notFound.FindStringSubmatch(message)
	if named == nil {
		return Ref{}, false
	}
	if other := inNamespace.FindStringSubmatch(message); other != nil {
		namespace = other[1]
	}
	kind := KindSecret
	if named[1] == "configmap" {
		kind = KindConfigMap
	}
	return Ref{kind, namespace, named[2]}, true
}

// mostMissing is how many missing objects of one pod are read.
const mostMissing = 3

// missing reads which of the Secrets and ConfigMaps exist by now that events of a pod name as not found. It reads their
// metadata alone, and a user who may not read that loses nothing else.
func (g *Gatherer) missing(ctx context.Context, namespace string, events []Event) {
	for _, e := range slices.Backward(events) {
		ref, ok := NotFoundIn(e.Message, namespace)
		if !ok || !strings.HasPrefix(e.Reason, "Failed") || len(g.facts.Missing) == mostMissing {
			continue
		}
		if _, known := g.facts.Missing[ref]; known {
			continue
		}
		g.progress(ref.String())
		object := &metav1.PartialObjectMetadata{}
		object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(ref.Kind))
		if g.facts.Missing == nil {
			g.facts.Missing = map[Ref]error{}
		}
		g.facts.Missing[ref] = g.Reader.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, object)
	}
}
