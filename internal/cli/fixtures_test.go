/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package cli

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/template"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/exclusive"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/explain/facts"
	"github.com/hawser-io/hawser/internal/explain/server"
)

// fixture is a broken situation: objects, and the subject that is asked about. testdata/why has one in each file. Its
// first line is "# why KIND NAME [-n NAMESPACE]", a line "# installed: false" means a cluster without Hawser.
//
// {{ago "5m"}} is a time before now, {{attachment "node"}} the name of the attachment of volume pv-1.
type fixture struct {
	name      string
	args      []string
	installed bool
	// lasting gives the Leases an hour on a real API server, so that they outlast a slow test.
	lasting bool
	// documents are YAML, one an object.
	documents []string
}

func fixtures(t *testing.T, now time.Time) []fixture {
	t.Helper()
	return fixturesOf(t, "why", now)
}

func fixturesOf(t *testing.T, command string, now time.Time) []fixture {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("testdata", command, "*.yaml"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("finding testdata/%s: %d files, error %v, want some", command, len(paths), err)
	}
	var all []fixture
	for _, path := range paths {
		all = append(all, readFixture(t, path, now))
	}
	return all
}

func readFixture(t *testing.T, path string, now time.Time) fixture {
	t.Helper()
	shared := filepath.Join("testdata", "shared.tmpl")
	text := template.Must(template.New(filepath.Base(path)).Funcs(template.FuncMap{
		"ago": func(d string) (string, error) {
			before, err := time.ParseDuration(d)
			return now.Add(-before).UTC().Format(time.RFC3339), err
		},
		"micro": func(d string) (string, error) {
			before, err := time.ParseDuration(d)
			return now.Add(-before).UTC().Format("2006-01-02T15:04:05.000000Z"), err
		},
		// renewal is what identifies a Lease's renewTime of {{micro}}, after its UID.
		"renewal": func(d string) (string, error) {
			before, err := time.ParseDuration(d)
			return now.Add(-before).UTC().Truncate(time.Microsecond).Format(time.RFC3339Nano), err
		},
		"lock":         func() string { return exclusive.Key("kubernetes.io/csi/disk.example.com^handle-1").Name },
		"attachment":   func(node string) string { return volume.AttachmentName("disk.example.com", "handle-1", node) },
		"attachmentOf": func(handle, node string) string { return volume.AttachmentName("disk.example.com", handle, node) },
	}).ParseFiles(shared, path))
	var out bytes.Buffer
	if err := text.Execute(&out, nil); err != nil {
		t.Fatal(err)
	}
	f := fixture{name: strings.TrimSuffix(filepath.Base(path), ".yaml"), installed: true}
	for line := range strings.Lines(out.String()) {
		line = strings.TrimSpace(line)
		if args, ok := strings.CutPrefix(line, "# why "); ok {
			f.args = append([]string{"why"}, strings.Fields(args)...)
		}
		if line == "# doctor" {
			f.args = []string{"doctor", "--all"}
		}
		f.installed = f.installed && line != "# installed: false"
	}
	for _, document := range strings.Split(out.String(), "\n---\n") {
		if strings.Contains(document, "kind:") {
			f.documents = append(f.documents, document)
		}
	}
	if len(f.args) < 2 {
		t.Fatalf("%s has no line # why KIND NAME", path)
	}
	return f
}

// strict decodes fixtures. It is made once, because that is slow.
var strict = sync.OnceValue(func() k8sruntime.Decoder {
	return serializer.NewCodecFactory(server.NewScheme(), serializer.EnableStrict).UniversalDeserializer()
})

func decodeObject(t *testing.T, document string) client.Object {
	t.Helper()
	object, _, err := strict().Decode([]byte(document), nil, nil)
	if err != nil {
		t.Fatalf("decoding %s: %v", document, err)
	}
	return object.(client.Object)
}

// claimField selects intents by their claim.
const claimField = "spec.volume.persistentVolumeClaim.claimName"

// fakeReader is an API server in memory with the indexes of a real one.
type fakeReader struct {
	client.Client
	installed bool
}

func (r fakeReader) Installed(context.Context) (bool, error) { return r.installed, nil }

func (r fakeReader) Attachments(ctx context.Context) ([]facts.Attachment, error) {
	var list storagev1.VolumeAttachmentList
	if err := r.List(ctx, &list); err != nil {
		return nil, err
	}
	var all []facts.Attachment
	for i := range list.Items {
		a := facts.Attachment{Name: list.Items[i].Name, Driver: list.Items[i].Spec.Attacher,
			Node: list.Items[i].Spec.NodeName, Attached: list.Items[i].Status.Attached}
		if name := list.Items[i].Spec.Source.PersistentVolumeName; name != nil {
			a.Volume = *name
		}
		all = append(all, a)
	}
	return all, nil
}

func newFakeReader(t *testing.T, f fixture) facts.Reader {
	t.Helper()
	var objects []client.Object
	for i, document := range f.documents {
		object := decodeObject(t, document)
		if object.GetUID() == "" {
			object.SetUID(types.UID(fmt.Sprintf("uid-%d", i)))
		}
		objects = append(objects, object)
	}
	c := fake.NewClientBuilder().WithScheme(server.NewScheme()).WithObjects(objects...).
		WithIndex(&corev1.Event{}, "involvedObject.uid", func(o client.Object) []string {
			return []string{string(o.(*corev1.Event).InvolvedObject.UID)}
		}).
		WithIndex(&corev1.Event{}, "involvedObject.kind", func(o client.Object) []string {
			return []string{o.(*corev1.Event).InvolvedObject.Kind}
		}).
		WithIndex(&corev1.Event{}, "type", func(o client.Object) []string {
			return []string{o.(*corev1.Event).Type}
		}).
		WithIndex(&corev1.Event{}, "reason", func(o client.Object) []string {
			return []string{o.(*corev1.Event).Reason}
		}).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string {
			return []string{o.(*corev1.Pod).Spec.NodeName}
		}).
		WithIndex(&corev1.Pod{}, "status.phase", func(o client.Object) []string {
			return []string{string(o.(*corev1.Pod).Status.Phase)}
		}).
		WithIndex(&volumesv1alpha1.VolumeAttachmentIntent{}, "spec.nodeName", func(o client.Object) []string {
			return []string{o.(*volumesv1alpha1.VolumeAttachmentIntent).Spec.NodeName}
		}).
		WithIndex(&volumesv1alpha1.VolumeAttachmentIntent{}, claimField, func(o client.Object) []string {
			source := o.(*volumesv1alpha1.VolumeAttachmentIntent).Spec.Volume.PersistentVolumeClaim
			if source == nil {
				return nil
			}
			return []string{source.ClaimName}
		}).
		WithIndex(&volumesv1alpha1.VolumeAttachmentIntent{}, "status.volumeName", func(o client.Object) []string {
			return []string{o.(*volumesv1alpha1.VolumeAttachmentIntent).Status.VolumeName}
		}).Build()
	return fakeReader{c, f.installed}
}

// create makes the objects of a fixture on a real API server, with their status. The UIDs of the fixture are replaced
// by those that the API server gives.
func (f fixture) create(t *testing.T, c client.Client) {
	t.Helper()
	uids := map[string]string{}
	namespaces := map[string]bool{"": true, "default": true}
	for _, document := range f.documents {
		for before, after := range uids {
			document = strings.ReplaceAll(document, before, after)
		}
		object := decodeObject(t, document)
		if namespace := object.GetNamespace(); !namespaces[namespace] {
			namespaces[namespace] = true
			ns := &corev1.Namespace{}
			ns.Name = namespace
			if err := c.Create(t.Context(), ns); err != nil && !apierrors.IsAlreadyExists(err) {
				t.Fatal(err)
			}
		}
		before := string(object.GetUID())
		lease, ok := object.(*coordinationv1.Lease)
		if ok && f.lasting {
			lease.Spec.LeaseDurationSeconds = ptr.To[int32](3600)
		}
		createObject(t, c, object)
		if ok {
			forgetWrites(t, c, lease)
		}
		if before != "" {
			uids[before] = string(object.GetUID())
		}
	}
}

// only keeps the objects of one kind.
func (f fixture) only(kind string) fixture {
	f.documents = slices.DeleteFunc(f.documents, func(d string) bool { return !strings.Contains(d, "kind: "+kind+"\n") })
	return f
}

// forgetWrites of the Lease: the API server records them with the time of the test, not with that of the fixture.
func forgetWrites(t *testing.T, c client.Client, lease *coordinationv1.Lease) {
	t.Helper()
	patch := []byte(`[{"op":"replace","path":"/metadata/managedFields","value":[{}]}]`)
	if err := c.Patch(t.Context(), lease, client.RawPatch(types.JSONPatchType, patch)); err != nil {
		t.Fatal(err)
	}
}

func createObject(t *testing.T, c client.Client, object client.Object) {
	t.Helper()
	wanted := object.DeepCopyObject().(client.Object)
	deleted := object.GetDeletionTimestamp() != nil
	object.SetUID("")
	object.SetDeletionTimestamp(nil)
	if err := c.Create(t.Context(), object); err != nil {
		t.Fatalf("creating %T %s: %v", object, object.GetName(), err)
	}
	wanted.SetUID(object.GetUID())
	wanted.SetResourceVersion(object.GetResourceVersion())
	wanted.SetDeletionTimestamp(nil)
	wanted.SetCreationTimestamp(object.GetCreationTimestamp())
	switch wanted.(type) {
	case *corev1.Event, *storagev1.CSINode, *storagev1.CSIDriver, *storagev1.StorageClass, *corev1.ConfigMap:
	default:
		if err := c.Status().Update(t.Context(), wanted); err != nil && !apierrors.IsNotFound(err) {
			t.Fatalf("updating the status of %T %s: %v", object, object.GetName(), err)
		}
	}
	if deleted {
		if err := c.Delete(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
}
