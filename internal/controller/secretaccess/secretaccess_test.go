/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package secretaccess

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/controllertest"
	"github.com/hawser-io/hawser/internal/install"
)

const account = "hawser-agent-node-node"

// fixture is a node with an API server that counts writes.
type fixture struct {
	*testing.T
	api    *controllertest.API
	c      *Controller
	events *events.FakeRecorder
	writes []string
	// closed is a namespace that is not open to the manager.
	closed string
}

func newFixture(t *testing.T, objects ...client.Object) *fixture {
	t.Helper()
	f := &fixture{T: t, events: events.NewFakeRecorder(10)}
	byName := func(o client.Object) []string { return []string{o.GetName()} } // which an API server can select by
	builder := fake.NewClientBuilder().WithScheme(controllertest.Scheme()).
		WithIndex(&rbacv1.Role{}, "metadata.name", byName).WithIndex(&rbacv1.RoleBinding{}, "metadata.name", byName).
		WithIndex(&corev1.ServiceAccount{}, "metadata.name", byName).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if err := f.wrote("create", o); err != nil {
				return err
			}
			return c.Create(ctx, o, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			if err := f.wrote("update", o); err != nil {
				return err
			}
			return c.Update(ctx, o, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if err := f.wrote("delete", o); err != nil {
				return err
			}
			return c.Delete(ctx, o, opts...)
		},
	})
	nvs := &volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{Name: "node", UID: "state"}}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}
	f.api = controllertest.New(t, builder, append(objects, nvs, node)...)
	f.c = &Controller{Client: f.api.Client, Reader: f.api.Live, Events: f.events}
	return f
}

// event is the next event that was published, or empty.
func (f *fixture) event() string {
	select {
	case event := <-f.events.Events:
		return event
	default:
		return ""
	}
}

func (f *fixture) wrote(verb string, o client.Object) error {
	kind := strings.TrimPrefix(fmt.Sprintf("%T", o), "*v1.")
	f.writes = append(f.writes, verb+" "+kind+" "+o.GetNamespace())
	if f.closed != "" && o.GetNamespace() == f.closed {
		return apierrors.NewForbidden(schema.GroupResource{Resource: kind}, o.GetName(), nil)
	}
	return nil
}

// reconcile reconciles the node on what the API server has now, and returns what was written.
func (f *fixture) reconcile() ([]string, error) {
	f.Helper()
	f.api.Sync()
	f.writes = nil
	_, err := f.c.Reconcile(f.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "node"}})
	return f.writes, err
}

// expectWrites fails unless a reconcile makes these writes, and another one none.
func (f *fixture) expectWrites(want ...string) {
	f.Helper()
	got, err := f.reconcile()
	if err != nil || !slices.Equal(got, want) {
		f.Errorf("the reconcile of the node wrote %q with error %v, want %q", got, err, want)
	}
	if got, err := f.reconcile(); err != nil || len(got) > 0 {
		f.Errorf("the next reconcile wrote %q with error %v, want nothing", got, err)
	}
}

// expectAccess fails unless the Roles and RoleBindings of the node's account allow these Secrets, by namespace.
func (f *fixture) expectAccess(want map[string][]string) {
	f.Helper()
	roles, bindings := &rbacv1.RoleList{}, &rbacv1.RoleBindingList{}
	for _, list := range []client.ObjectList{roles, bindings} {
		if err := f.api.Live.List(f.Context(), list); err != nil {
			f.Fatal(err)
		}
	}
	got := map[string][]string{}
	for _, role := range roles.Items {
		r := role.Rules[0]
		if role.Name != account || len(role.Rules) != 1 || !slices.Equal(r.Verbs, []string{"get"}) ||
			!slices.Equal(r.Resources, []string{"secrets"}) || !slices.Equal(r.APIGroups, []string{""}) {
			f.Errorf("Role %s/%s has rules %v, want one that allows %s to get Secrets", role.Namespace, role.Name, role.Rules,
				account)
		}
		got[role.Namespace] = r.ResourceNames
	}
	if !maps.EqualFunc(got, want, slices.Equal) {
		f.Errorf("the Roles name the Secrets %v, want %v", got, want)
	}
	bound := map[string]bool{}
	for _, b := range bindings.Items {
		bound[b.Namespace] = true
		subject := rbacv1.Subject{Kind: "ServiceAccount", Namespace: install.Namespace(), Name: account}
		if b.Name != account || b.RoleRef.Name != account || b.RoleRef.Kind != "Role" ||
			!slices.Equal(b.Subjects, []rbacv1.Subject{subject}) {
			f.Errorf("RoleBinding %s/%s binds %v to %v, want Role %s to %v", b.Namespace, b.Name, b.RoleRef, b.Subjects, account,
				subject)
		}
	}
	for namespace := range want {
		if !bound[namespace] {
			f.Errorf("there is no RoleBinding in namespace %s", namespace)
		}
		delete(bound, namespace)
	}
	if len(bound) > 0 {
		f.Errorf("RoleBindings are left in %v, want none", bound)
	}
}

func (f *fixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// bound is a bound claim and its volume, which names these Secrets.
func bound(name string, change func(*corev1.CSIPersistentVolumeSource)) []client.Object {
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	capacity := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("claim-" + name)},
		Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: "pv-" + name, AccessModes: modes},
		Status:     corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
	}
	csi := &corev1.CSIPersistentVolumeSource{Driver: "csi.example.com", VolumeHandle: name}
	if change != nil {
		change(csi)
	}
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-" + name, UID: types.UID("pv-" + name)},
		Spec: corev1.PersistentVolumeSpec{AccessModes: modes, Capacity: capacity,
			ClaimRef:               &corev1.ObjectReference{Namespace: "default", Name: name, UID: claim.UID},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: csi}}}
	return []client.Object{claim, pv}
}

func ref(namespace, name string) *corev1.SecretReference {
	return &corev1.SecretReference{Namespace: namespace, Name: name}
}

// three Secrets of two namespaces.
func three(csi *corev1.CSIPersistentVolumeSource) {
	csi.NodeStageSecretRef, csi.NodePublishSecretRef = ref("storage", "stage"), ref("tenant", "publish")
	csi.NodeExpandSecretRef = ref("storage", "expand")
}

type anIntent = volumesv1alpha1.VolumeAttachmentIntent

func intent(claim string, change ...func(*anIntent)) *anIntent {
	i := &volumesv1alpha1.VolumeAttachmentIntent{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: claim}}
	i.Spec.NodeName, i.Spec.DesiredState = "node", volumesv1alpha1.DesiredPublished
	i.Spec.Volume.PersistentVolumeClaim = &volumesv1alpha1.PersistentVolumeClaimSource{ClaimName: claim}
	for _, c := range change {
		c(i)
	}
	return i
}

// isStaged has the agent's condition on the intent.
func isStaged(i *volumesv1alpha1.VolumeAttachmentIntent) {
	i.Status.Conditions = []metav1.Condition{{Type: volumesv1alpha1.ConditionStaged, Status: metav1.ConditionTrue}}
}

func TestAVolumeWithoutSecretsCostsNoWrite(t *testing.T) {
	f := newFixture(t, append(bound("data", nil), intent("data"))...)
	f.expectWrites()
	if got := f.c.ofIntent(t.Context(), intent("data")); len(got) > 0 {
		t.Errorf("intent data has the requests %v, want no reconcile", got)
	}
}

func TestANodeMayReadTheSecretsOfItsVolumesAsLongAsTheyAreWanted(t *testing.T) {
	objects := append(bound("data", three), bound("more", three)...)
	data, more := intent("data"), intent("more")
	f := newFixture(t, append(objects, data)...)
	f.expectWrites("create ServiceAccount hawser-system", "create Role storage", "create RoleBinding storage",
		"create Role tenant", "create RoleBinding tenant")
	all := map[string][]string{"storage": {"expand", "stage"}, "tenant": {"publish"}}
	f.expectAccess(all)

	f.must(f.api.Live.Create(t.Context(), more))
	f.expectWrites() // the Secrets are the same
	f.must(f.api.Live.Delete(t.Context(), data))
	f.expectWrites()
	f.expectAccess(all)
	f.must(f.api.Live.Delete(t.Context(), more))
	f.expectWrites("delete Role storage", "delete RoleBinding storage", "delete Role tenant", "delete RoleBinding tenant")
	f.expectAccess(nil)
}

func TestARoleFollowsWhatTheVolumesNeed(t *testing.T) {
	other := func(csi *corev1.CSIPersistentVolumeSource) { csi.NodeStageSecretRef = ref("storage", "other") }
	objects := append(bound("data", three), bound("more", other)...)
	f := newFixture(t, append(objects, intent("data"))...)
	_, err := f.reconcile()
	f.must(err)
	f.must(f.api.Live.Create(t.Context(), intent("more")))
	f.expectWrites("update Role storage")
	f.expectAccess(map[string][]string{"storage": {"expand", "other", "stage"}, "tenant": {"publish"}})
	f.must(f.api.Live.Delete(t.Context(), intent("data")))
	f.expectWrites("update Role storage", "delete Role tenant", "delete RoleBinding tenant")
	f.expectAccess(map[string][]string{"storage": {"other"}})
}

func TestOnlyWhatTheAgentReadsIsAllowed(t *testing.T) {
	objects := bound("data", three)
	for name, c := range map[string]struct {
		change func(*anIntent)
		want   map[string][]string
	}{
		"staged: not the Secret for publishing": {func(i *anIntent) {
			i.Spec.DesiredState = volumesv1alpha1.DesiredStaged
		}, map[string][]string{"storage": {"expand", "stage"}}},
		"attached: none": {func(i *anIntent) {
			i.Spec.DesiredState = volumesv1alpha1.DesiredAttached
		}, nil},
		"published by the kubelet: none": {func(i *anIntent) {
			i.Spec.Publisher = volumesv1alpha1.PublisherKubelet
		}, nil},
		"on another node: none": {func(i *anIntent) { i.Spec.NodeName = "other" }, nil},
		"of a claim that does not exist: none": {func(i *anIntent) {
			i.Spec.Volume.PersistentVolumeClaim.ClaimName = "absent"
		}, nil},
		"being deleted, while it is staged: only the Secret for staging": {func(i *anIntent) {
			i.Finalizers, i.DeletionTimestamp = []string{volumesv1alpha1.ReleaseFinalizer}, &metav1.Time{Time: metav1.Now().Time}
			isStaged(i)
		}, map[string][]string{"storage": {"stage"}}},
		"lowered to attached, while it is staged: only that, too": {func(i *anIntent) {
			i.Spec.DesiredState = volumesv1alpha1.DesiredAttached
			isStaged(i)
		}, map[string][]string{"storage": {"stage"}}},
		"being deleted: none": {func(i *anIntent) {
			i.Finalizers, i.DeletionTimestamp = []string{volumesv1alpha1.ReleaseFinalizer}, &metav1.Time{Time: metav1.Now().Time}
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, append(slices.Clone(objects), intent("data", c.change))...)
			_, err := f.reconcile()
			f.must(err)
			f.expectAccess(c.want)
		})
	}
}

// A user may create a claim that names any volume. It is not bound then.
func TestAClaimThatOnlyNamesAVolumeGivesNoAccessToItsSecrets(t *testing.T) {
	objects := bound("data", three)
	thief := bound("thief", nil)[0].(*corev1.PersistentVolumeClaim)
	thief.Spec.VolumeName = "pv-data"
	f := newFixture(t, append(objects, thief, intent("thief"))...)
	f.expectWrites()
	f.expectAccess(nil)
}

func TestAnIntentWithoutItsClaimKeepsTheSecretsOfItsEntry(t *testing.T) {
	i := intent("data")
	i.Status.UniqueVolumeName, i.Status.ClaimUID = "kubernetes.io/csi/csi.example.com^data", "gone"
	f := newFixture(t, i)
	f.expectWrites()
	state := &volumesv1alpha1.NodeVolumeState{}
	f.must(f.api.Live.Get(t.Context(), client.ObjectKey{Name: "node"}, state))
	state.Spec.Attachments = []volumesv1alpha1.NodeAttachment{{VolumeName: i.Status.UniqueVolumeName,
		State: volumesv1alpha1.AttachmentAttached, NodeStageSecretRef: ref("storage", "stage")}}
	f.must(f.api.Live.Update(t.Context(), state))
	_, err := f.reconcile()
	f.must(err)
	f.expectAccess(map[string][]string{"storage": {"stage"}})

	f.must(f.api.Live.Get(t.Context(), client.ObjectKey{Name: "node"}, state))
	state.Spec.Attachments[0].State = volumesv1alpha1.AttachmentDetaching
	f.must(f.api.Live.Update(t.Context(), state))
	_, err = f.reconcile()
	f.must(err)
	f.expectAccess(nil)
}

func TestANamespaceThatIsClosedToTheManagerKeepsNoOtherFromItsSecrets(t *testing.T) {
	f := newFixture(t, append(bound("data", three), intent("data"))...)
	f.closed = "storage"
	_, err := f.reconcile()
	if !apierrors.IsForbidden(err) {
		t.Errorf("the reconcile of a node that needs Secrets of a closed namespace returns %v, want Forbidden", err)
	}
	f.expectAccess(map[string][]string{"tenant": {"publish"}})
	if event := f.event(); !strings.Contains(event, EventSecretAccessRefused) ||
		!strings.Contains(event, "namespace storage") || !strings.Contains(event, "hawser-secret-granter") {
		t.Errorf("the event is %q, want %s with the namespace and the role to bind", event, EventSecretAccessRefused)
	}
	f.closed = ""
	f.expectWrites("create Role storage", "create RoleBinding storage")
}

// An object of the name may be there by chance, or to keep the node from its Secrets, or to be bound to its account.
func TestAStrangersObjectOfTheNameIsNamedAndLeftAsItIs(t *testing.T) {
	labelled := map[string]string{install.NodeAccountLabel: "true"}
	rules := []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}}
	anyone := []rbacv1.Subject{{Kind: "Group", Name: "system:authenticated", APIGroup: rbacv1.GroupName}}
	for name, c := range map[string]struct {
		stranger client.Object
		named    string
	}{
		"a Role": {&rbacv1.Role{Rules: rules}, "Role storage/" + account},
		"a Role with the label": {&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Labels: labelled}, Rules: rules},
			"Role storage/" + account},
		"a RoleBinding": {&rbacv1.RoleBinding{Subjects: anyone}, "RoleBinding storage/" + account},
		"a RoleBinding with the label": {&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Labels: labelled},
			Subjects: anyone}, "RoleBinding storage/" + account},
	} {
		t.Run(name, func(t *testing.T) {
			c.stranger.SetNamespace("storage")
			c.stranger.SetName(account)
			f := newFixture(t, append(bound("data", three), intent("data"), c.stranger)...)
			f.must(f.api.Live.Get(t.Context(), client.ObjectKeyFromObject(c.stranger), c.stranger))
			for range 2 {
				f.api.Sync()
				result, err := f.c.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "node"}})
				if err != nil || result.RequeueAfter != strangerAgain {
					t.Errorf("the node is reconciled again after %s with error %v, want %s and no error", result.RequeueAfter, err,
						strangerAgain)
				}
				if event := f.event(); !strings.Contains(event, EventSecretAccessRefused) ||
					!strings.Contains(event, c.named+" was not made by Hawser: delete it") {
					t.Errorf("the event is %q, want %s that names %s", event, EventSecretAccessRefused, c.named)
				}
			}
			now := c.stranger.DeepCopyObject().(client.Object)
			f.must(f.api.Live.Get(t.Context(), client.ObjectKeyFromObject(now), now))
			if now.GetResourceVersion() != c.stranger.GetResourceVersion() {
				t.Errorf("%s was written: %v, want it left as it is", c.named, now)
			}
			f.must(f.api.Live.Delete(t.Context(), now))
			_, err := f.reconcile()
			f.must(err)
			f.expectAccess(map[string][]string{"storage": {"expand", "stage"}, "tenant": {"publish"}})
		})
	}
}

func TestNothingIsBoundToARoleThatAStrangerPutInTheManagersPlace(t *testing.T) {
	f := newFixture(t, append(bound("data", three), intent("data"))...)
	_, err := f.reconcile()
	f.must(err)
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "storage", Name: account}}
	f.must(f.api.Live.Delete(t.Context(), role.DeepCopy()))
	f.must(f.api.Live.Create(t.Context(), role))
	f.expectWritesAgain("create Role storage", "delete RoleBinding storage")
	f.expectWritesAgain("create Role storage")
}

// expectWritesAgain fails unless a reconcile makes these writes.
func (f *fixture) expectWritesAgain(want ...string) {
	f.Helper()
	if got, err := f.reconcile(); err != nil || !slices.Equal(got, want) {
		f.Errorf("the reconcile of the node wrote %q with error %v, want %q", got, err, want)
	}
}

func TestWhatTheCacheDoesNotShowYetIsNoStranger(t *testing.T) {
	f := newFixture(t, append(bound("data", three), intent("data"))...)
	for range 2 { // on the same cache
		_, err := f.c.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "node"}})
		f.must(err)
	}
	if len(f.events.Events) > 0 {
		t.Errorf("the event is %q, want none", <-f.events.Events)
	}
	f.expectAccess(map[string][]string{"storage": {"expand", "stage"}, "tenant": {"publish"}})
}

func TestARoleThatWasCreatedAgainIsNotDeletedForItsPredecessor(t *testing.T) {
	i := intent("data")
	f := newFixture(t, append(bound("data", three), i)...)
	_, err := f.reconcile()
	f.must(err)
	f.must(f.api.Live.Delete(t.Context(), i))
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "storage", Name: account}}
	f.must(f.api.Live.Get(t.Context(), client.ObjectKeyFromObject(role), role))
	role.UID = "earlier" // the fake API server gives none
	f.must(f.api.Live.Update(t.Context(), role))
	f.api.Sync()
	f.must(f.api.Live.Delete(t.Context(), role.DeepCopy()))
	role.UID, role.ResourceVersion = "again", ""
	f.must(f.api.Live.Create(t.Context(), role))
	_, err = f.c.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "node"}})
	if !apierrors.IsConflict(err) {
		t.Errorf("the reconcile on an old cache returns %v, want a conflict", err)
	}
	f.must(f.api.Live.Get(t.Context(), client.ObjectKeyFromObject(role), role))
}

func TestWhatOthersChangedIsRepaired(t *testing.T) {
	f := newFixture(t, append(bound("data", three), intent("data"))...)
	_, err := f.reconcile()
	f.must(err)
	role, binding := &rbacv1.Role{}, &rbacv1.RoleBinding{}
	f.must(f.api.Live.Get(t.Context(), client.ObjectKey{Namespace: "storage", Name: account}, role))
	f.must(f.api.Live.Get(t.Context(), client.ObjectKey{Namespace: "tenant", Name: account}, binding))
	role.Rules[0].ResourceNames = nil
	binding.Subjects[0].Name = "other"
	f.must(f.api.Live.Update(t.Context(), role))
	f.must(f.api.Live.Update(t.Context(), binding))
	for range 2 { // a binding is deleted first
		_, err := f.reconcile()
		f.must(err)
	}
	f.expectAccess(map[string][]string{"storage": {"expand", "stage"}, "tenant": {"publish"}})
}

func TestEverythingOfANodeBelongsToItsState(t *testing.T) {
	f := newFixture(t, append(bound("data", three), intent("data"))...)
	_, err := f.reconcile()
	f.must(err)
	for _, o := range []client.Object{
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: install.Namespace(), Name: account}},
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "storage", Name: account}},
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "storage", Name: account}},
	} {
		f.must(f.api.Live.Get(t.Context(), client.ObjectKeyFromObject(o), o))
		owners := o.GetOwnerReferences()
		if len(owners) != 1 || owners[0].Kind != "NodeVolumeState" || owners[0].Name != "node" || owners[0].UID != "state" {
			t.Errorf("%T %s has the owners %v, want the node state", o, o.GetName(), owners)
		}
		if o.GetLabels()[install.NodeAccountLabel] != "true" {
			t.Errorf("%T %s has no label %s, want it: the manager caches nothing else", o, o.GetName(),
				install.NodeAccountLabel)
		}
		if got := ofAccess(t.Context(), o); len(got) != 1 || got[0].Name != "node" {
			t.Errorf("a change of %T %s requests %v, want node", o, o.GetName(), got)
		}
	}
}

func TestANodeWhoseStateGoesGetsNothingNew(t *testing.T) {
	f := newFixture(t, append(bound("data", three), intent("data"))...)
	f.must(f.api.Live.Delete(t.Context(), &volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{Name: "node"}}))
	f.expectWrites()
}

func TestANodeIsReconciledWhenItsSecretsMayChange(t *testing.T) {
	objects := append(bound("data", three), bound("plain", nil)...)
	f := newFixture(t, append(objects, intent("data"), intent("plain"))...)
	claim, pv := objects[0], objects[1]
	expect := func(what string, got []reconcile.Request, want bool) {
		t.Helper()
		if requested := len(got) == 1 && got[0].Name == "node"; requested != want {
			t.Errorf("%s requests %v, want the node: %t", what, got, want)
		}
	}
	expect("an intent with Secrets", f.c.ofIntent(t.Context(), intent("data")), true)
	expect("its claim", f.c.ofClaim(t.Context(), claim), true)
	expect("its volume", f.c.ofVolume(t.Context(), pv), true)
	expect("an intent without Secrets", f.c.ofIntent(t.Context(), intent("plain")), false)
	expect("its claim", f.c.ofClaim(t.Context(), objects[2]), false)
	expect("its volume", f.c.ofVolume(t.Context(), objects[3]), false)
	expect("an intent without a volume", f.c.ofIntent(t.Context(), intent("absent")), false)
	_, err := f.reconcile()
	f.must(err)
	f.api.Sync()
	expect("an intent whose volume has gone", f.c.ofIntent(t.Context(), intent("absent")), true)
	expect("an intent without Secrets", f.c.ofIntent(t.Context(), intent("plain")), false)
}

func TestOnlyAnIntentThatIsOrWasStagedLeadsToAReconcile(t *testing.T) {
	change := func(changes ...func(*volumesv1alpha1.VolumeAttachmentIntent)) *volumesv1alpha1.VolumeAttachmentIntent {
		i := intent("data")
		for _, c := range changes {
			c(i)
		}
		return i
	}
	byKubelet := func(i *volumesv1alpha1.VolumeAttachmentIntent) { i.Spec.Publisher = volumesv1alpha1.PublisherKubelet }
	attached := func(i *volumesv1alpha1.VolumeAttachmentIntent) { i.Spec.DesiredState = volumesv1alpha1.DesiredAttached }
	pinned := func(i *volumesv1alpha1.VolumeAttachmentIntent) { i.Status.UniqueVolumeName = "v" }
	deleted := func(i *volumesv1alpha1.VolumeAttachmentIntent) { i.DeletionTimestamp = ptr.To(metav1.Now()) }
	for _, c := range []struct {
		what          string
		before, after *volumesv1alpha1.VolumeAttachmentIntent
		want          bool
	}{
		{"an intent of the kubelet", change(byKubelet), change(byKubelet, pinned), false},
		{"one that is to be attached", change(attached), change(attached, pinned), false},
		{"one that gets its volume", change(), change(pinned), true},
		{"one that does not change", change(pinned), change(pinned), false},
		{"one that is lowered", change(pinned), change(attached, pinned), true},
		{"one that is raised", change(attached), change(), true},
		{"one that is deleted", change(), change(deleted), true},
		{"one that is deleted while it is staged", change(isStaged), change(isStaged, deleted), true},
		{"one that was lowered and is unstaged", change(attached, isStaged), change(attached), true},
	} {
		if got := wantChanged.Update(event.UpdateEvent{ObjectOld: c.before, ObjectNew: c.after}); got != c.want {
			t.Errorf("an update of %s leads to a reconcile: %t, want %t", c.what, got, c.want)
		}
	}
	for _, c := range []struct {
		intent *volumesv1alpha1.VolumeAttachmentIntent
		want   bool
	}{{change(), true}, {change(attached), false}, {change(byKubelet), false}, {change(attached, isStaged), true}} {
		if got := wantChanged.Create(event.CreateEvent{Object: c.intent}); got != c.want {
			t.Errorf("a new intent with %+v leads to a reconcile: %t, want %t", c.intent.Spec, got, c.want)
		}
		if got := wantChanged.Delete(event.DeleteEvent{Object: c.intent}); got != c.want {
			t.Errorf("an intent with %+v that is gone leads to a reconcile: %t, want %t", c.intent.Spec, got, c.want)
		}
	}
}
