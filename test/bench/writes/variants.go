/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package writes

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/bench/attach/cluster"
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
		{name: "an intent, with three watches of all", before: b.watched(3), write: b.intent(3)},
		{name: "an intent, by the manager under Hawser's admission policies", before: b.policies, write: b.intent(3)},
	}
	if cbor {
		all = append(all, variant{name: "the status of an intent, update in CBOR", write: b.encoded})
	}
	return all
}

func (b *bench) attachment(ctx context.Context, round, i int) error {
	body := fmt.Appendf(nil, `{"status":{"attached":true,"attachmentMetadata":{"round":"%d-%d"}}}`, round, time.Now().UnixNano())
	return b.objects.client.Status().Patch(ctx, b.objects.attachments[i], client.RawPatch(types.MergePatchType, body))
}

func (b *bench) intent(conditions int) func(context.Context, int, int) error {
	return func(ctx context.Context, round, i int) error {
		intent := b.objects.intents[i]
		report(intent, round, conditions)
		return b.objects.client.Status().Update(ctx, intent)
	}
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
	return func(ctx context.Context, round, i int) error {
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

// kind changes the schema of the intents' kind.
func (b *bench) kind(change func(*apiextensionsv1.JSONSchemaProps)) func(context.Context) (func(context.Context) error, error) {
	return func(ctx context.Context) (func(context.Context) error, error) {
		alter := func(ctx context.Context, change func(*apiextensionsv1.CustomResourceDefinition)) error {
			kind := &apiextensionsv1.CustomResourceDefinition{}
			key := client.ObjectKey{Name: "volumeattachmentintents." + volumesv1alpha1.GroupVersion.Group}
			if err := b.objects.client.Get(ctx, key, kind); err != nil {
				return fmt.Errorf("reading the kind: %w", err)
			}
			change(kind)
			if err := b.objects.client.Update(ctx, kind); err != nil {
				return fmt.Errorf("changing the kind: %w", err)
			}
			return settle(ctx)
		}
		var was *apiextensionsv1.JSONSchemaProps
		err := alter(ctx, func(kind *apiextensionsv1.CustomResourceDefinition) {
			was = kind.Spec.Versions[0].Schema.OpenAPIV3Schema.DeepCopy()
			change(kind.Spec.Versions[0].Schema.OpenAPIV3Schema)
		})
		return func(ctx context.Context) error {
			return alter(ctx, func(kind *apiextensionsv1.CustomResourceDefinition) {
				kind.Spec.Versions[0].Schema.OpenAPIV3Schema = was
			})
		}, err
	}
}

// settle waits until the API server serves a changed kind, or enforces changed policies. Nothing signals that.
func settle(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(5 * time.Second):
		return nil
	}
}

func withoutSchema(s *apiextensionsv1.JSONSchemaProps) {
	yes := true
	*s = apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &yes}
}

func withoutRules(s *apiextensionsv1.JSONSchemaProps) {
	s.XValidations = nil
	for name, property := range s.Properties {
		withoutRules(&property)
		s.Properties[name] = property
	}
	if s.Items != nil && s.Items.Schema != nil {
		withoutRules(s.Items.Schema)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		withoutRules(s.AdditionalProperties.Schema)
	}
}

// watched has clients watch all intents.
func (b *bench) watched(watches int) func(context.Context) (func(context.Context) error, error) {
	return func(ctx context.Context) (func(context.Context) error, error) {
		ctx, stop := context.WithCancel(ctx)
		for range watches {
			c, err := cluster.Client(b.cluster.Instruments())
			if err != nil {
				stop()
				return nil, err
			}
			w, err := c.Watch(ctx, &volumesv1alpha1.VolumeAttachmentIntentList{})
			if err != nil {
				stop()
				return nil, fmt.Errorf("watching the intents: %w", err)
			}
			go func() {
				for range w.ResultChan() { // ends with its context
				}
			}()
		}
		return func(context.Context) error { stop(); return nil }, nil
	}
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
	if b.objects.client, err = client.NewWithWatch(manager, client.Options{Scheme: b.objects.client.Scheme()}); err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	return func(ctx context.Context) error {
		b.objects.client = instruments
		return b.cluster.Delete(ctx, "-k", "admission")
	}, settle(ctx)
}
