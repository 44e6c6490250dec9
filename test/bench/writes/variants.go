/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package writes

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/bench/attach/cluster"
	"github.com/hawser-io/hawser/test/bench/attach/stage"
	"github.com/hawser-io/hawser/test/system"
)

// variants in the order of the report. Each but the first changes one thing of one that is above it.
func (b *bench) variants(cbor bool) []variant {
	intent := variant{name: "the status of an intent, update", write: b.intent(3), baseline: true}
	all := []variant{
		intent,
		{name: "the status of a VolumeAttachment, merge patch", write: b.attachment},
		{name: "the status of an intent, merge patch", write: b.patched},
		{name: "the status of an intent, update with one condition", write: b.intent(1)},
		{name: "a node state with 20 volumes, update of its spec", write: b.state(perNode)},
		{name: "a node state with 1 volume, update of its spec", write: b.state(1)},
		{name: "an intent, its kind without rules", before: b.kind(withoutRules), write: b.intent(3)},
		{name: "an intent, its kind without a schema", before: b.kind(withoutSchema), write: b.intent(3)},
		{name: "an intent, its conditions an atomic list", before: b.kind(atomicConditions), write: b.intent(3)},
		{name: "an intent, its managed fields reset by each update", write: b.unmanaged},
		{name: "an intent, with three watches of all", before: b.watched(3, nothing), write: b.intent(3)},
		{name: "an intent, with the watches of 500 agents", before: b.watched(500, ofNode), write: b.intent(3)},
		{name: "an intent, with the watches of 2000 agents", before: b.watched(2000, ofNode), write: b.intent(3)},
		{name: "an intent, by the manager under Hawser's admission policies", before: b.policies, write: b.intent(3)},
	}
	if cbor {
		all = append(all, variant{name: "the status of an intent, update in CBOR", write: b.encoded})
	}
	return all
}

func (b *bench) attachment(ctx context.Context, round, i int) error {
	body := fmt.Appendf(nil, `{"status":{"attached":true,"attachmentMetadata":{"round":"%d-%d"}}}`, round,
		time.Now().UnixNano())
	return b.objects.client.Status().Patch(ctx, b.objects.attachments[i], client.RawPatch(types.MergePatchType, body))
}

func (b *bench) intent(conditions int) func(context.Context, int, int) error {
	return func(ctx context.Context, round, i int) error {
		intent := b.objects.intents[i]
		report(intent, round, conditions)
		return b.objects.client.Status().Update(ctx, intent)
	}
}

// unmanaged has the API server forget who wrote which field.
func (b *bench) unmanaged(ctx context.Context, round, i int) error {
	b.objects.intents[i].ManagedFields = []metav1.ManagedFieldsEntry{{}}
	return b.intent(3)(ctx, round, i)
}

func (b *bench) patched(ctx context.Context, round, i int) error {
	intent := b.objects.intents[i]
	report(intent, round, 3)
	body, err := json.Marshal(map[string]any{"status": intent.Status})
	if err != nil {
		return fmt.Errorf("encoding a status: %w", err)
	}
	return b.objects.client.Status().Patch(ctx, intent, client.RawPatch(types.MergePatchType, body))
}

func (b *bench) state(volumes int) func(context.Context, int, int) error {
	return func(ctx context.Context, _, i int) error {
		nvs := b.objects.states[i]
		nvs.Spec.Attachments = state(i).Spec.Attachments[:volumes]
		nvs.Spec.Protocol.Fences++
		return b.objects.client.Update(ctx, nvs)
	}
}

// encoded writes as intent does, in CBOR.
func (b *bench) encoded(ctx context.Context, round, i int) error {
	intent := b.objects.intents[i]
	report(intent, round, 3)
	return b.objects.cbor.Put().Namespace(intent.Namespace).Resource("volumeattachmentintents").Name(intent.Name).
		SubResource("status").Body(intent).Do(ctx).Into(intent)
}

// kind changes the kind of the intents.
func (b *bench) kind(
	change func(*apiextensionsv1.CustomResourceDefinitionVersion),
) func(context.Context) (func(context.Context) error, error) {
	return func(ctx context.Context) (func(context.Context) error, error) {
		var was apiextensionsv1.CustomResourceDefinitionVersion
		err := b.alterKind(ctx, func(v *apiextensionsv1.CustomResourceDefinitionVersion) {
			was = *v.DeepCopy()
			change(v)
		})
		return func(ctx context.Context) error {
			return b.alterKind(ctx, func(v *apiextensionsv1.CustomResourceDefinitionVersion) { *v = was })
		}, err
	}
}

func (b *bench) alterKind(ctx context.Context, change func(*apiextensionsv1.CustomResourceDefinitionVersion)) error {
	kind := &apiextensionsv1.CustomResourceDefinition{}
	key := client.ObjectKey{Name: "volumeattachmentintents." + volumesv1alpha1.GroupVersion.Group}
	if err := b.objects.client.Get(ctx, key, kind); err != nil {
		return fmt.Errorf("reading the kind: %w", err)
	}
	change(&kind.Spec.Versions[0])
	if err := b.objects.client.Update(ctx, kind); err != nil {
		return fmt.Errorf("changing the kind: %w", err)
	}
	return settle(ctx)
}

// settle waits until the API server serves a changed kind, or enforces changed policies. Nothing signals that.
func settle(ctx context.Context) error { return stage.Pause(ctx, 5*time.Second) }

func withoutSchema(v *apiextensionsv1.CustomResourceDefinitionVersion) {
	v.SelectableFields = nil // they need one
	v.Schema.OpenAPIV3Schema = &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr.To(true)}
}

func atomicConditions(v *apiextensionsv1.CustomResourceDefinitionVersion) {
	status := v.Schema.OpenAPIV3Schema.Properties["status"]
	conditions := status.Properties["conditions"]
	conditions.XListType, conditions.XListMapKeys = ptr.To("atomic"), nil
	status.Properties["conditions"] = conditions
}

func withoutRules(v *apiextensionsv1.CustomResourceDefinitionVersion) {
	dropRules(v.Schema.OpenAPIV3Schema)
}

func dropRules(s *apiextensionsv1.JSONSchemaProps) {
	s.XValidations = nil
	for name, property := range s.Properties {
		dropRules(&property)
		s.Properties[name] = property
	}
	if s.Items != nil && s.Items.Schema != nil {
		dropRules(s.Items.Schema)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		dropRules(s.AdditionalProperties.Schema)
	}
}

// watched has clients watch intents.
func (b *bench) watched(
	watches int, which func(int) client.ListOption,
) func(context.Context) (func(context.Context) error, error) {
	return func(ctx context.Context) (func(context.Context) error, error) {
		c, err := cluster.Client(b.cluster.Instruments())
		if err != nil {
			return nil, err
		}
		watching, stop := context.WithCancel(ctx)
		var ended sync.WaitGroup
		undo := func(context.Context) error { stop(); ended.Wait(); return nil }
		for i := range watches {
			w, err := c.Watch(watching, &volumesv1alpha1.VolumeAttachmentIntentList{}, which(i))
			if err != nil {
				stop()
				return nil, fmt.Errorf("watching the intents: %w", err)
			}
			ended.Go(func() {
				for range w.ResultChan() { // ends with its context
				}
			})
		}
		return undo, settle(ctx)
	}
}

func nothing(int) client.ListOption { return client.InNamespace("") }

// ofNode is what an agent watches: the intents of its node. None of those that are written is on one of these nodes.
func ofNode(i int) client.ListOption {
	return client.MatchingFields{"spec.nodeName": fmt.Sprintf("other-%04d", i)}
}

// policies are in force, and the manager writes: most of them are about its writes.
func (b *bench) policies(ctx context.Context) (func(context.Context) error, error) {
	for _, part := range []string{"namespace", "admission"} {
		if err := b.cluster.Apply(ctx, "-k", part); err != nil {
			return nil, err
		}
	}
	manager, err := b.cluster.Administrator(system.ManagerUser)
	if err != nil {
		return nil, err
	}
	instruments := b.objects.client
	scheme := instruments.Scheme()
	if b.objects.client, err = client.NewWithWatch(manager, client.Options{Scheme: scheme}); err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	return func(ctx context.Context) error {
		b.objects.client = instruments
		return b.cluster.Delete(ctx, "-k", "admission")
	}, settle(ctx)
}
