/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package cli

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/explain/facts"
	"github.com/hawser-io/hawser/internal/explain/tree"
	"github.com/hawser-io/hawser/internal/relocate"
	"github.com/hawser-io/hawser/internal/survey"
	"github.com/hawser-io/hawser/test/apiserver"
)

func TestSurveysOnARealAPIServer(t *testing.T) {
	config, c := apiserver.Borrow(t)
	one(t, "node-orphan-and-stuck-detach", time.Now()).create(t, c)
	for _, tt := range []struct {
		args string
		exit int
		want []string
	}{
		{"tree node node-b", Fine, []string{"Node node-b: 2 volumes", "shop/lost, which does not exist", "Detaching"}},
		{"tree pv pv-1", Fine, []string{"PersistentVolume pv-1: Bound, 1Gi, ReadWriteOnce",
			"PersistentVolumeClaim shop/data: Bound"}},
		{"tree node node-b -o json", Fine, []string{`"kind": "Tree"`}},
		{"tree pvc data -n shop", Fine, []string{"PersistentVolumeClaim shop/data: Bound"}},
		{"tree thing web", Failed, []string{"want pod, pvc, pv, intent, set, node"}},
		{"top", Fine, []string{"NODE", "node-b"}},
		{"top wrong", Failed, []string{"there is no NodeVolumeState wrong"}},
		{"orphans", Findings, []string{"node-b", "shop/lost"}},
		{"orphans -o yaml", Findings, []string{"kind: Orphans"}},
		{"history pv-1", Fine, []string{"PersistentVolume pv-1", "created"}},
		{"history pvc/data -n shop", Fine, []string{"PersistentVolumeClaim shop/data", "created"}},
		{"history node node-b", Fine, []string{"Node node-b", "created"}},
		{"history wrong", Failed, []string{"there is no PersistentVolume wrong"}},
		{"plan drain node-b", Findings, []string{"2 would hang", "the attacher of driver disk.example.com"}},
		{"top -o custom-columns=NODE:.node", Fine, []string{"NODE\nnode-b"}},
		{"why node node-b -o jsonpath={.reports[0].findings[0].code}", Findings, []string{"HWS407"}},
		{"why node node-b -o name", Findings, []string{"volumeattachmentintent.volumes.hawser.io/lost"}},
		{"doctor -o go-template={{.kind}}", Findings, []string{"DoctorReport"}},
		{"plan drain node-b -o custom-columns=FATE:.volumes[*].fate", Findings, []string{"FATE\nHangs,Hangs"}},
		{"tree node node-b -o name", Fine, []string{"node/node-b"}},
		{"history pv-1 -o name", Fine, []string{"persistentvolume/pv-1\n"}},
		{"orphans --template={{.wrong.wrong.}}", Failed, []string{"template"}},
		{"orphans --template={{.kind}}", Findings, []string{"Orphans"}},
		{"plan fence node-b", Findings, []string{"2 volumes on node node-b", "Stays"}},
		{"plan fence node-b -o json", Findings, []string{`"kind": "FencePlan"`, `"fate": "Stays"`}},
		{"plan fence wrong", Failed, []string{"there is no Node wrong"}},
		{"plan drain wrong -o json", Failed, []string{"there is no Node wrong"}},
	} {
		stdout, stderr, exit := run(t, config, strings.Fields(tt.args)...)
		for _, want := range tt.want {
			if exit != tt.exit || !strings.Contains(stdout+stderr, want) {
				t.Errorf("%s: exit code %d, want %d and %q; stderr %q, stdout:\n%s", tt.args, exit, tt.exit, want, stderr, stdout)
			}
		}
	}
}

func TestASupportBundleHasNoSecretAndListsWhatItLeftOut(t *testing.T) {
	config, c := apiserver.Borrow(t)
	one(t, "intent-ready", time.Now()).create(t, c)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "hawser-system", Name: "token"},
		StringData: map[string]string{"token": "do-not-leak"}}
	foreign := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "hawser-system", Name: "of-another-program"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a", Args: []string{"do-not-leak"}}}}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "hawser-system", Name: "agent",
		Labels:      map[string]string{"app.kubernetes.io/name": "hawser"},
		Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: "do-not-leak"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a",
			Env: []corev1.EnvVar{{Name: "TOKEN", Value: "do-not-leak"}}}}}}
	set := &volumesv1alpha1.VolumeAttachmentIntentSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "models"},
		Spec: volumesv1alpha1.VolumeAttachmentIntentSetSpec{NodeSelector: &metav1.LabelSelector{},
			Template: volumesv1alpha1.IntentTemplate{Spec: volumesv1alpha1.IntentTemplateSpec{
				Volume: &volumesv1alpha1.TemplateVolumeSource{
					PersistentVolumeClaim: volumesv1alpha1.PersistentVolumeClaimSource{ClaimName: "data"}}}}}}
	for _, object := range []client.Object{secret, foreign, pod, set} {
		if err := c.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "bundle.tar.gz")
	stdout, stderr, exit := run(t, config, "support-bundle", "--file", path)
	if exit != Fine || strings.TrimSpace(stdout) != path {
		t.Fatalf("exit code %d, stdout %q, stderr %q; want %d and the path", exit, stdout, stderr, Fine)
	}
	files := unpack(t, path)
	for name, text := range files {
		if strings.Contains(text, "do-not-leak") {
			t.Errorf("%s has a secret:\n%s", name, text)
		}
	}
	for file, name := range map[string]string{"intents.yaml": "data-on-node-b", "intentsets.yaml": "models",
		"system-pods.yaml": "agent"} {
		if !strings.Contains(files[file], name) {
			t.Errorf("%s of the bundle is %q, want %s in it", file, files[file], name)
		}
	}
	if index := files["index.txt"]; strings.Contains(index, "--hawser-namespace") {
		t.Errorf("the index of a bundle with a pod of Hawser is %q, want no word about its namespace", index)
	}
	_, stderr, exit = run(t, config, "support-bundle", "--file", path)
	if exit != Failed || !strings.Contains(stderr, path) {
		t.Errorf("an archive that exists: exit code %d, stderr %q, want %d and its name", exit, stderr, Failed)
	}
	poor := filepath.Join(t.TempDir(), "bundle.tar.gz")
	if _, stderr, exit = run(t, as(config, "stranger"), "support-bundle", "--file", poor); exit != Fine {
		t.Fatalf("a user without rights: exit code %d, stderr %q, want %d", exit, stderr, Fine)
	}
	if index := unpack(t, poor)["index.txt"]; !strings.Contains(index, "intents: left out: ") {
		t.Errorf("the index of a user without rights is %q, want that intents are left out", index)
	}
}

// lister is a cluster whose lists are a function.
type lister struct {
	facts.Reader
	list func(context.Context, client.ObjectList) error
}

func (l lister) List(ctx context.Context, list client.ObjectList, _ ...client.ListOption) error {
	return l.list(ctx, list)
}

// bundleOf makes a bundle of a cluster, and returns its exit code and its files.
func bundleOf(ctx context.Context, t *testing.T, l lister) (exit int, files map[string]string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "bundle.tar.gz")
	o := &options{now: time.Now, IOStreams: genericiooptions.NewTestIOStreamsDiscard()}
	g := &facts.Gatherer{Reader: l, System: "hawser-system"}
	exit = code(o.expired(ctx, (&bundle{options: o, file: path}).run(ctx, g, nil)))
	return exit, unpack(t, path)
}

func TestASupportBundleThatTookTooLongHasWhatWasReadUntilThen(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	read := false
	exit, files := bundleOf(ctx, t, lister{list: func(ctx context.Context, list client.ObjectList) error {
		if intents, ok := list.(*volumesv1alpha1.VolumeAttachmentIntentList); ok && !read {
			read, intents.Items, intents.Continue = true, make([]volumesv1alpha1.VolumeAttachmentIntent, 1), "next"
			return nil
		}
		<-ctx.Done()
		return ctx.Err()
	}})
	index := files["index.txt"]
	for _, want := range []string{"intents: only the first 1: context deadline exceeded",
		"nodestates: left out: context deadline exceeded"} {
		if exit != TimedOut || !strings.Contains(index, want) || strings.Contains(index, "complete") {
			t.Errorf("exit code %d, index %q; want %d and %q, and nothing that is complete", exit, index, TimedOut, want)
		}
	}
	if files["intents.yaml"] == "" {
		t.Errorf("the archive has %q, want the first intent", files)
	}
}

func TestASupportBundleThatAnErrorEndedIsNoSuccess(t *testing.T) {
	classes := schema.GroupResource{Group: "storage.k8s.io", Resource: "storageclasses"}
	for _, tt := range []struct {
		err   error
		after int // pages
		exit  int
		index string
	}{
		{apierrors.NewResourceExpired("too old"), 1, Failed, "only the first 100: too old"},
		{os.ErrDeadlineExceeded, 0, Failed, "left out: i/o timeout"}, // of --request-timeout
		{apierrors.NewForbidden(classes, "", nil), 1, Failed, "only the first 100: "},
		{apierrors.NewForbidden(classes, "", nil), 0, Fine, "left out: "},
		{&meta.NoKindMatchError{}, 0, Fine, "left out: "},
	} {
		pages := 0
		exit, files := bundleOf(t.Context(), t, lister{list: func(_ context.Context, list client.ObjectList) error {
			classes, ok := list.(*storagev1.StorageClassList)
			if !ok {
				return nil
			}
			if pages++; pages > tt.after {
				return tt.err
			}
			classes.Items, classes.Continue = make([]storagev1.StorageClass, listedAtOnce), "next"
			return nil
		}})
		if index := files["index.txt"]; exit != tt.exit || !strings.Contains(index, "storageclasses: "+tt.index) {
			t.Errorf("%v after %d pages: exit code %d, index %q; want %d and %q", tt.err, tt.after, exit, index, tt.exit,
				tt.index)
		}
	}
}

func TestAListThatIsTooLongIsNotComplete(t *testing.T) {
	exit, files := bundleOf(t.Context(), t, lister{list: func(_ context.Context, list client.ObjectList) error {
		if classes, ok := list.(*storagev1.StorageClassList); ok {
			classes.Items, classes.Continue = make([]storagev1.StorageClass, mostListed/2), "next"
		}
		return nil
	}})
	index := files["index.txt"]
	if exit != Fine || !strings.Contains(index, "storageclasses: only the first 5000\n") ||
		strings.Contains(index, "storageclasses: complete") || !strings.Contains(index, "nodes: complete") {
		t.Errorf("exit code %d, index %q; want %d and that the StorageClasses alone are not complete", exit, index, Fine)
	}
}

func TestASupportBundleThatFoundNoPodOfHawserNamesTheFlag(t *testing.T) {
	config, c := apiserver.Borrow(t)
	one(t, "intent-ready", time.Now()).create(t, c)
	path := filepath.Join(t.TempDir(), "bundle.tar.gz")
	_, stderr, exit := run(t, config, "support-bundle", "--hawser-namespace", "elsewhere", "--file", path)
	if exit != Fine {
		t.Fatalf("exit code %d, stderr %q; want %d", exit, stderr, Fine)
	}
	index := unpack(t, path)["index.txt"]
	for _, want := range []string{"namespace elsewhere has no pod of Hawser", "--hawser-namespace"} {
		if !strings.Contains(index, want) {
			t.Errorf("the index is %q, want %q in it", index, want)
		}
	}
}

// unpack returns the content of each file of an archive, without the top directory.
func unpack(t *testing.T, path string) map[string]string {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	packed, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for in := tar.NewReader(packed); ; {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		files[strings.TrimPrefix(header.Name, "hawser-support/")] = string(text)
	}
}

func TestClaimsAreNamedBesideTheirVolumes(t *testing.T) {
	entry := volumesv1alpha1.NodeAttachment{VolumeName: "v", PersistentVolumeName: "pv-1", AttachmentUID: "va-1",
		DetachedTime: ptr.To(metav1.Now()), DetachError: "stuck"}
	pv := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{
		Namespace: "shop", Name: "data"}}}
	volumes := map[string]*corev1.PersistentVolume{"pv-1": pv}
	s := volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}}
	s.Spec.Attachments = []volumesv1alpha1.NodeAttachment{entry}
	s.Status.Volumes = []volumesv1alpha1.NodeVolume{{VolumeName: "v", AttachmentUID: "va-1"}}
	states := []volumesv1alpha1.NodeVolumeState{s}
	drain := survey.PlanDrain(survey.Ground{State: &s, Volumes: volumes})
	leaving := &relocate.Plan{Subject: "Node node-a", Intents: []relocate.Leaving{{Intent: "shop/mine"}}}
	leaving.Intents[0].Progress.Source = &volumesv1alpha1.VolumeAttachmentIntent{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop"}, Spec: volumesv1alpha1.VolumeAttachmentIntentSpec{
			Volume: volumesv1alpha1.VolumeSource{PersistentVolumeClaim: &volumesv1alpha1.PersistentVolumeClaimSource{
				ClaimName: "data"}}}}
	o := &options{}
	for name, write := range map[string]func(*bytes.Buffer){
		"top":        func(b *bytes.Buffer) { o.writeUses(b, survey.Top(states, volumes)) },
		"orphans":    func(b *bytes.Buffer) { writeOrphans(b, survey.Orphans(states, volumes)) },
		"plan drain": func(b *bytes.Buffer) { o.writeDrainPlan(b, &drain) },
		"plan fence": func(b *bytes.Buffer) {
			f := survey.PlanFence(&facts.Fencing{Volumes: volumes, Facts: &facts.Facts{
				Subject: facts.Ref{Kind: facts.KindNode, Name: "node-a"}, Nodes: []facts.Node{{Name: "node-a",
					State: facts.Object[*volumesv1alpha1.NodeVolumeState]{Value: &s, Found: true}}}}})
			o.writeFencePlan(b, &f)
		},
		"drain": func(b *bytes.Buffer) { o.writePlan(b, leaving) },
		"declare-released": func(b *bytes.Buffer) {
			b.WriteString(strings.Join(findAttachment(&facts.Facts{Persistent: volumes}, &s, "va-1"), "\n"))
		},
		"tree": func(b *bytes.Buffer) {
			f := &facts.Facts{Subject: facts.Ref{Kind: facts.KindNode, Name: "node-a"}, Persistent: volumes,
				Nodes: []facts.Node{{Name: "node-a"}}}
			f.Nodes[0].State.Value, f.Nodes[0].State.Found = &s, true
			root := tree.Of(f)
			writeBranch(b, &root, "", "")
		},
	} {
		var b bytes.Buffer
		if write(&b); !strings.Contains(b.String(), "shop/data") {
			t.Errorf("%s does not name claim shop/data:\n%s", name, &b)
		}
	}
}
