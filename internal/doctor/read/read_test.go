/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package read

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/policy/shipped"
	"github.com/hawser-io/hawser/internal/explain/facts"
	"github.com/hawser-io/hawser/internal/version"
)

// server answers lists in pages, and remembers which were read.
type server struct {
	installed bool
	// objects by the type of their list.
	objects map[string][]client.Object
	errs    map[string]error
	// expired is the list whose second page is gone, once.
	expired string

	mu   sync.Mutex
	read map[string]int
}

var _ facts.Reader = (*server)(nil)

func (s *server) Installed(context.Context) (bool, error) { return s.installed, nil }

func (s *server) Attachments(context.Context) ([]facts.Attachment, error) {
	return nil, errors.New("the attachments are a list")
}

// Get knows the Secret that is named created.
func (s *server) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if _, metadata := into.(*metav1.PartialObjectMetadata); !metadata {
		return errors.New("nothing but metadata is read one by one")
	}
	s.read["metadata of "+key.Name]++
	if key.Name == "created" {
		return nil
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

func (s *server) List(_ context.Context, into client.ObjectList, options ...client.ListOption) error {
	given := (&client.ListOptions{}).ApplyOptions(options)
	kind := fmt.Sprintf("%T", into)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.read[kind]++
	if err := s.errs[kind]; err != nil {
		return err
	}
	first := 0
	if given.Continue != "" {
		if kind == s.expired {
			s.expired = ""
			return apierrors.NewResourceExpired("too old")
		}
		if _, err := fmt.Sscan(given.Continue, &first); err != nil {
			return err
		}
	}
	end := len(s.objects[kind])
	if given.Limit > 0 && first+int(given.Limit) < end {
		end = first + int(given.Limit)
		into.SetContinue(fmt.Sprint(end))
	}
	var page []runtime.Object
	for _, o := range s.objects[kind][first:end] {
		page = append(page, o.DeepCopyObject())
	}
	return meta.SetList(into, page)
}

func newServer() *server {
	return &server{objects: map[string][]client.Object{}, errs: map[string]error{}, read: map[string]int{}}
}

func (s *server) kinds() string { return strings.Join(slices.Sorted(maps.Keys(s.read)), " ") }

func TestAllPagesOfAListAreReadAlsoAfterTheyExpired(t *testing.T) {
	for _, expired := range []string{"", "*v1.PersistentVolumeList"} {
		s := newServer()
		s.expired = expired
		for i := range 1200 {
			s.objects["*v1.PersistentVolumeList"] = append(s.objects["*v1.PersistentVolumeList"],
				&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("pv-", i)}})
		}
		c, err := Cluster(t.Context(), s, "", "hawser-system")
		if err != nil {
			t.Fatal(err)
		}
		names := map[string]bool{}
		for _, pv := range c.Volumes.Items {
			names[pv.Name] = true
		}
		if len(names) != 1200 {
			t.Errorf("expired %q: %d volumes, error %v; want all 1200", expired, len(names), c.Volumes.Err)
		}
	}
}

func TestEventsAreReadOnlyIfSomethingWaits(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: corev1.PodSpec{
		Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}}}
	for phase, want := range map[corev1.PodPhase]int{corev1.PodRunning: 0, corev1.PodPending: 1} {
		s := newServer()
		pod.Status.Phase = phase
		s.objects["*v1.PodList"] = []client.Object{pod}
		if _, err := Cluster(t.Context(), s, "", "hawser-system"); err != nil {
			t.Fatal(err)
		}
		if got := s.read["*v1.EventList"]; got != want {
			t.Errorf("with a pod that is %s events are read %d times, want %d", phase, got, want)
		}
	}
}

func TestWhatAKubeletHasNotFoundIsReadOnceForPodsThatWait(t *testing.T) {
	s := newServer()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "waits", Name: "web", Namespace: "shop"},
		Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: "v"}}}, Status: corev1.PodStatus{Phase: corev1.PodPending}}
	s.objects["*v1.PodList"] = []client.Object{pod}
	event := func(uid types.UID, secret string) client.Object {
		return &corev1.Event{InvolvedObject: corev1.ObjectReference{UID: uid, Namespace: "shop"}, Reason: "FailedMount",
			Message: fmt.Sprintf("MountVolume.SetUp failed: secret %q not found", secret)}
	}
	s.objects["*v1.EventList"] = []client.Object{event("waits", "created"), event("waits", "created"),
		event("waits", "absent"), event("gone", "of-another-pod")}
	c, err := Cluster(t.Context(), s, "", "hawser-system")
	if err != nil {
		t.Fatal(err)
	}
	secret := func(name string) facts.Ref { return facts.Ref{Kind: facts.KindSecret, Namespace: "shop", Name: name} }
	if exists, read := c.Missing[secret("created")]; len(c.Missing) != 2 || !read || exists != nil ||
		!apierrors.IsNotFound(c.Missing[secret("absent")]) || s.read["metadata of created"] != 1 {
		t.Errorf("missing %v, requests %v; want the two Secrets of the pod that waits, each read once", c.Missing, s.read)
	}
}

func TestHawsersKindsAreReadOnlyWhereTheyAreInstalled(t *testing.T) {
	s := newServer()
	if _, err := Cluster(t.Context(), s, "", "hawser-system"); err != nil {
		t.Fatal(err)
	}
	if got := s.kinds(); strings.Contains(got, "v1alpha1") || strings.Contains(got, "Policy") {
		t.Errorf("without Hawser these are read: %s; want none of its kinds", got)
	}
	s.installed = true
	if _, err := Cluster(t.Context(), s, "", "hawser-system"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"NodeVolumeStateList", "LeaseList", "ValidatingAdmissionPolicyBindingList"} {
		if got := s.kinds(); !strings.Contains(got, want) {
			t.Errorf("with Hawser these are read: %s; want %s too", got, want)
		}
	}
}

func TestOneListThatFailsDoesNotEndTheOthers(t *testing.T) {
	s := newServer()
	s.errs["*v1.NodeList"] = apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no"))
	s.objects["*v1.PersistentVolumeList"] = []client.Object{&corev1.PersistentVolume{}}
	c, err := Cluster(t.Context(), s, "", "hawser-system")
	if err != nil || !apierrors.IsForbidden(c.Nodes.Err) || len(c.Volumes.Items) != 1 {
		t.Errorf("error %v, of nodes %v, %d volumes; want the volumes, and the error with the nodes", err, c.Nodes.Err,
			len(c.Volumes.Items))
	}
}

// policiesOf are the policies of this release as they are installed.
func policiesOf(t *testing.T, s *server) {
	t.Helper()
	specs, err := shipped.Load()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range shipped.Policies {
		for _, gvk := range p.Kind {
			object, err := scheme.Scheme.New(gvk)
			if err != nil {
				t.Fatal(err)
			}
			content := map[string]any{"metadata": map[string]any{"name": p.Name, "labels": map[string]any{
				shipped.Label: p.Name}}, "spec": runtime.DeepCopyJSON(specs[[2]string{gvk.Kind, p.Name}])}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, object); err != nil {
				t.Fatal(err)
			}
			kind := "*v1." + gvk.Kind + "List"
			s.objects[kind] = append(s.objects[kind], object.(client.Object))
		}
	}
}

// forbid has the server refuse to list a kind.
func forbid(kind string) func(*server) {
	return func(s *server) {
		s.errs["*v1."+kind+"List"] = apierrors.NewForbidden(schema.GroupResource{Resource: kind}, "", nil)
	}
}

func TestPoliciesAreComparedWithThoseOfTheSameVersionAlone(t *testing.T) {
	for _, tt := range []struct {
		name, version string
		change        func(*server)
		missing       []string
		unknown       bool
	}{
		{name: "as shipped", version: version.Version, change: func(*server) {}},
		{name: "a binding is missing", version: version.Version, change: func(s *server) {
			const kind = "*v1.ValidatingAdmissionPolicyBindingList"
			s.objects[kind] = s.objects[kind][1:]
		}, missing: []string{shipped.Hold}},
		{name: "another version", version: "v9.9.9", change: func(*server) {}, unknown: true},
		{name: "no version", change: func(s *server) {
			s.objects["*v1alpha1.VolumeManagerList"] = []client.Object{&volumesv1alpha1.VolumeManager{}}
		}, unknown: true},
		{name: "no more than the kinds", change: func(*server) {}},
		{name: "no mutating policies in this Kubernetes", version: version.Version, change: func(s *server) {
			for _, kind := range []string{"", "Binding"} {
				s.errs["*v1.MutatingAdmissionPolicy"+kind+"List"] = &meta.NoKindMatchError{}
			}
		}},
		{name: "bindings that may not be read", version: version.Version, change: forbid("ValidatingAdmissionPolicyBinding"),
			unknown: true},
		{name: "mutating policies that may not be read", version: version.Version, change: forbid("MutatingAdmissionPolicy"),
			unknown: true},
		{name: "mutating bindings that may not be read", version: version.Version,
			change: forbid("MutatingAdmissionPolicyBinding"), unknown: true},
	} {
		s := newServer()
		s.installed = true
		policiesOf(t, s)
		s.objects["*v1alpha1.NodeVolumeStateList"] = []client.Object{&volumesv1alpha1.NodeVolumeState{
			Status: volumesv1alpha1.NodeVolumeStateStatus{AgentVersion: tt.version}}}
		tt.change(s)
		c, err := Cluster(t.Context(), s, "", "hawser-system")
		if err != nil {
			t.Fatal(err)
		}
		got := slices.Sorted(maps.Keys(c.Policies))
		if !slices.Equal(got, tt.missing) || (c.PoliciesErr != nil) != tt.unknown ||
			facts.Denied(c.PoliciesErr) != (tt.unknown && len(s.errs) > 0) {
			t.Errorf("%s: missing %v (%v), error %v; want %v, and an error %t", tt.name, got, c.Policies, c.PoliciesErr,
				tt.missing, tt.unknown)
		}
	}
}

// A watch trims objects once, and each report trims its copies again.
func TestWhatIsTrimmedTwiceIsAsAfterOnce(t *testing.T) {
	at := metav1.NewTime(time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC))
	writes := []metav1.ManagedFieldsEntry{{Manager: "kubelet", Time: &at, FieldsV1: metav1.NewFieldsV1(`{"f:spec":{}}`)}}
	asked := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}
	for name, object := range map[string]client.Object{
		"a pod that runs": &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}, Volumes: []corev1.
			Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}}},
			Status: corev1.PodStatus{Phase: corev1.PodRunning}},
		"a pod without volumes": &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning, Message: "x"}},
		"a CSINode":             &storagev1.CSINode{},
		"a claim that grows": &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{
			Resources: corev1.VolumeResourceRequirements{Requests: asked}}},
		"a node that is tainted": &corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{{
			Key: corev1.TaintNodeOutOfService}}}},
	} {
		object.SetManagedFields(writes)
		kept := Trim(object)
		once := object.DeepCopyObject()
		if again := Trim(object); again != kept || cmp.Diff(once, object) != "" {
			t.Errorf("%s: kept %t, then %t; difference: %s", name, kept, again, cmp.Diff(once, object))
		}
	}
}
