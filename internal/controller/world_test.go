/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package controller_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller"
	"github.com/hawser-io/hawser/internal/controller/attachment"
	"github.com/hawser-io/hawser/internal/controller/cached"
	"github.com/hawser-io/hawser/internal/controller/metrics"
	"github.com/hawser-io/hawser/internal/controller/policy"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/test/apiserver"
)

const (
	driverName = "stub.csi.hawser.io"
	// patience with what has to come about. Nothing that passes waits for its end; a busy machine is slow.
	patience = 90 * time.Second
)

// world is one control plane with everything of the cluster that Hawser does not bring along.
type world struct {
	config   *rest.Config
	client   client.WithWatch
	attacher *attacher
}

func TestMain(m *testing.M) { os.Exit(apiserver.Main(m)) }

func newWorld(t *testing.T) *world {
	// Most of a test is waiting, and each has a control plane for itself.
	t.Parallel()
	return newWorldAlone(t)
}

// newWorldAlone is for a test that reads what all managers of a process share: nothing runs beside it.
func newWorldAlone(t *testing.T) *world {
	cfg, c := apiserver.Borrow(t)
	w := &world{config: cfg, client: c}
	w.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: volumesv1alpha1.InstallNamespace}})
	w.attacher = startAttacher(t, c)
	return w
}

func (w *world) create(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		if err := w.client.Create(t.Context(), o); err != nil {
			t.Fatalf("creating %T %s: %v", o, o.GetName(), err)
		}
	}
}

func (w *world) delete(t *testing.T, o client.Object) {
	t.Helper()
	if err := w.client.Delete(t.Context(), o); err != nil {
		t.Fatalf("deleting %T %s: %v", o, o.GetName(), err)
	}
}

// counter counts the manager's requests by verb and resource, Events apart.
type counter struct {
	next http.RoundTripper
	// down, if it is not nil: the API server cannot be reached. It receives each write that did not arrive.
	down atomic.Pointer[chan struct{}]
	mu   sync.Mutex
	seen map[string]int
}

func (c *counter) RoundTrip(r *http.Request) (*http.Response, error) {
	if what := describeRequest(r); what != "" {
		c.mu.Lock()
		c.seen[what]++
		c.mu.Unlock()
	}
	if missed := c.down.Load(); missed != nil {
		if r.Method != http.MethodGet {
			select {
			case *missed <- struct{}{}:
			default:
			}
		}
		return nil, errors.New("the API server is down")
	}
	return c.next.RoundTrip(r)
}

// goDown lets no request through any more, and returns what is sent to with each write.
func (c *counter) goDown() <-chan struct{} {
	missed := make(chan struct{}, 100)
	c.down.Store(&missed)
	return missed
}

// describeRequest names a single object's request, such as "PATCH volumeattachments"; empty for what is not counted.
func describeRequest(r *http.Request) string {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if len(parts) > 1 && parts[0] == "api" {
		parts = parts[2:]
	} else if len(parts) > 2 {
		parts = parts[3:]
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	if len(parts) == 0 || parts[0] == "events" || r.Method == http.MethodGet && len(parts) < 2 {
		return ""
	}
	what := r.Method + " " + parts[0]
	if len(parts) > 2 {
		what += "/" + parts[2]
	}
	return what
}

func (c *counter) writes() (int, string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for what, count := range c.seen {
		if !strings.HasPrefix(what, http.MethodGet) {
			n += count
		}
	}
	return n, fmt.Sprint(c.seen)
}

func (c *counter) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.seen)
}

type managerOptions struct {
	clock     clock.PassiveClock
	newClient client.NewClientFunc
	// transport is put between the manager and the API server.
	transport func(http.RoundTripper) http.RoundTripper
	// attachMode is Coexist unless it is set.
	attachMode controller.AttachMode
	podIntents bool
	// forceDetachAfter of pod intents.
	forceDetachAfter time.Duration
	// forgetGoneAfter is the policy for Nodes that are gone.
	forgetGoneAfter time.Duration
	// policies is for a manager that has its own account and checks whether its admission policies are in force.
	policies *policy.Gate
	// metrics of the manager go here, if anywhere.
	metrics prometheus.Registerer
}

// manage runs a manager until the test ends or stop is called, which waits for it.
func (w *world) manage(t *testing.T, o managerOptions) (requests *counter, stop func()) {
	t.Helper()
	requests, filled, stop := w.start(t, o)
	if !filled(t.Context()) {
		t.Fatal("the cache did not fill")
	}
	return requests, stop
}

// start runs a manager as manage does, and leaves it to the caller to wait until its cache is filled.
func (w *world) start(t *testing.T, o managerOptions) (requests *counter, filled func(context.Context) bool, stop func()) {
	t.Helper()
	if o.clock == nil {
		o.clock = clock.RealClock{}
	}
	requests = &counter{seen: map[string]int{}}
	cfg := rest.CopyConfig(w.config)
	if o.policies != nil {
		cfg.Impersonate = rest.ImpersonationConfig{
			UserName: "system:serviceaccount:" + volumesv1alpha1.InstallNamespace + ":hawser-manager", Groups: []string{"system:authenticated"},
		}
	}
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		if o.transport != nil {
			next = o.transport(next)
		}
		requests.next = next
		return requests
	})
	mgr, err := manager.New(cfg, manager.Options{
		Scheme: apiserver.Scheme(), Cache: cached.Options(), NewClient: o.newClient, MapperProvider: w.mapper,
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	})
	if err != nil {
		t.Fatalf("creating a manager: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var policies attachment.Policies = inForce{}
	if o.policies != nil {
		policies = o.policies
		if err := o.policies.Register(mgr); err != nil {
			t.Fatalf("registering the watch over the policies: %v", err)
		}
	}
	if err := controller.Register(ctx, mgr, controller.Options{
		AttachMode: cmp.Or(o.attachMode, controller.Coexist), PodIntents: o.podIntents || o.attachMode == controller.Replace,
		ForceDetachAfter: o.forceDetachAfter, ForgetGoneNodesAfter: o.forgetGoneAfter, Clock: o.clock, Policies: policies,
	}); err != nil {
		t.Fatalf("registering: %v", err)
	}
	if o.metrics != nil {
		if err := metrics.Register(ctx, mgr, o.metrics); err != nil {
			t.Fatalf("registering metrics: %v", err)
		}
	}
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("running a manager: %v", err)
		}
	})
	t.Cleanup(stop)
	return requests, mgr.GetCache().WaitForCacheSync, stop
}

// mapper spares each manager asking for all kinds.
func (w *world) mapper(*rest.Config, *http.Client) (meta.RESTMapper, error) {
	return w.client.RESTMapper(), nil
}

// inForce is the admission policies where a test does not concern them.
type inForce struct{}

func (inForce) Missing() string { return "" }

func (inForce) Changed() <-chan event.GenericEvent { return make(chan event.GenericEvent) }

// node makes a Node with the driver on it, and an agent.
func (w *world) node(t *testing.T, name string) *agent {
	t.Helper()
	w.bareNode(t, name)
	return w.agent(t, name)
}

func (w *world) bareNode(t *testing.T, name string) {
	t.Helper()
	w.create(t,
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}},
		csiNode(name),
	)
}

func csiNode(name string) *storagev1.CSINode {
	return &storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: driverName, NodeID: name}}},
	}
}

type volumeOptions struct {
	modes    []corev1.PersistentVolumeAccessMode
	mode     corev1.PersistentVolumeMode
	affinity string
}

func newClaim(name string, o volumeOptions) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: o.accessModes(), VolumeMode: o.volumeMode(), StorageClassName: ptr.To(""),
			Resources: corev1.VolumeResourceRequirements{Requests: capacity("1Gi")},
		},
	}
}

func (o volumeOptions) accessModes() []corev1.PersistentVolumeAccessMode {
	if o.modes == nil {
		return []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	}
	return o.modes
}

func (o volumeOptions) volumeMode() *corev1.PersistentVolumeMode {
	if o.mode == "" {
		return ptr.To(corev1.PersistentVolumeFilesystem)
	}
	return &o.mode
}

func capacity(q string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(q)}
}

func newVolume(claim *corev1.PersistentVolumeClaim, o volumeOptions) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv-" + claim.Name},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes: o.accessModes(), VolumeMode: o.volumeMode(), Capacity: capacity("1Gi"),
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: driverName, VolumeHandle: "vol-" + claim.Name, FSType: "ext4",
			}},
			ClaimRef: &corev1.ObjectReference{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID},
		},
	}
	if o.affinity != "" {
		pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{o.affinity}}},
		}}}}
	}
	return pv
}

// bind does what the PersistentVolume controller does for a claim and its volume.
func (w *world) bind(t *testing.T, claim *corev1.PersistentVolumeClaim) {
	t.Helper()
	w.change(t, claim, func() {
		claim.Spec.VolumeName = "pv-" + claim.Name
		// Nothing here would remove Kubernetes' own protection again.
		claim.Finalizers = slices.DeleteFunc(claim.Finalizers, func(f string) bool { return f == "kubernetes.io/pvc-protection" })
	})
	w.phase(t, claim, corev1.ClaimBound)
}

func (w *world) phase(t *testing.T, claim *corev1.PersistentVolumeClaim, phase corev1.PersistentVolumeClaimPhase) {
	t.Helper()
	w.changeStatus(t, claim, func() {
		claim.Status.Phase, claim.Status.Capacity, claim.Status.AccessModes = phase, capacity("1Gi"), claim.Spec.AccessModes
	})
}

// change reads an object, changes and updates it until no other writer was first.
func (w *world) change(t *testing.T, o client.Object, change func()) {
	t.Helper()
	w.retry(t, o, change, func() error { return w.client.Update(t.Context(), o) })
}

func (w *world) changeStatus(t *testing.T, o client.Object, change func()) {
	t.Helper()
	w.retry(t, o, change, func() error { return w.client.Status().Update(t.Context(), o) })
}

func (w *world) retry(t *testing.T, o client.Object, change func(), write func() error) {
	t.Helper()
	for {
		if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			t.Fatalf("reading %T %s: %v", o, o.GetName(), err)
		}
		change()
		err := write()
		if apierrors.IsConflict(err) {
			continue
		}
		if err != nil {
			t.Fatalf("changing %T %s: %v", o, o.GetName(), err)
		}
		return
	}
}

// volume makes a claim that is bound to a volume.
func (w *world) volume(t *testing.T, name string, o volumeOptions) *corev1.PersistentVolumeClaim {
	t.Helper()
	claim := newClaim(name, o)
	w.create(t, claim)
	w.create(t, newVolume(claim, o))
	w.bind(t, claim)
	return claim
}

func newIntent(name, node, claim string) *volumesv1alpha1.VolumeAttachmentIntent {
	return &volumesv1alpha1.VolumeAttachmentIntent{
		// The finalizer is what the admission policy sets on an intent whose volume is to be published.
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Finalizers: []string{volumesv1alpha1.ReleaseFinalizer}},
		Spec: volumesv1alpha1.VolumeAttachmentIntentSpec{
			NodeName: node,
			Volume:   volumesv1alpha1.VolumeSource{PersistentVolumeClaim: &volumesv1alpha1.PersistentVolumeClaimSource{ClaimName: claim}},
		},
	}
}

// intent creates an intent.
func (w *world) intent(t *testing.T, name, node, claim string) *volumesv1alpha1.VolumeAttachmentIntent {
	t.Helper()
	intent := newIntent(name, node, claim)
	w.create(t, intent)
	return intent
}

// until waits, by a watch on the object's kind, until the object satisfies ok; o is nil-valued (UID empty) while it
// does not exist.
func until[T client.Object](t *testing.T, w *world, o T, what string, ok func(T) bool) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	key := client.ObjectKeyFromObject(o)
	list := listFor(o)
	for {
		watcher, err := w.client.Watch(ctx, list, client.InNamespace(key.Namespace), client.MatchingFields{"metadata.name": key.Name})
		if err != nil {
			t.Fatalf("waiting until %s: watching: %v", what, err)
		}
		for {
			err := w.client.Get(ctx, key, o)
			if apierrors.IsNotFound(err) {
				o.SetUID("")
				o.SetDeletionTimestamp(nil)
			} else if err != nil {
				watcher.Stop()
				t.Fatalf("waiting until %s: %v; last seen: %+v", what, err, o)
			}
			if ok(o) {
				watcher.Stop()
				return o
			}
			if _, open := <-watcher.ResultChan(); !open {
				break
			}
		}
		if ctx.Err() != nil {
			t.Fatalf("it did not come about that %s; last seen: %s", what, dump(o))
		}
	}
}

func listFor(o client.Object) client.ObjectList {
	switch o.(type) {
	case *volumesv1alpha1.VolumeAttachmentIntent:
		return &volumesv1alpha1.VolumeAttachmentIntentList{}
	case *volumesv1alpha1.NodeVolumeState:
		return &volumesv1alpha1.NodeVolumeStateList{}
	case *storagev1.VolumeAttachment:
		return &storagev1.VolumeAttachmentList{}
	case *corev1.PersistentVolumeClaim:
		return &corev1.PersistentVolumeClaimList{}
	case *coordinationv1.Lease:
		return &coordinationv1.LeaseList{}
	case *corev1.ConfigMap:
		return &corev1.ConfigMapList{}
	case *corev1.Pod:
		return &corev1.PodList{}
	case *corev1.Node:
		return &corev1.NodeList{}
	}
	panic(fmt.Sprintf("no list for %T", o))
}

func exists[T client.Object](o T) bool { return o.GetUID() != "" }

// gone waits until the object does not exist.
func gone[T client.Object](t *testing.T, w *world, o T) {
	t.Helper()
	until(t, w, o, fmt.Sprintf("%T %s is gone", o, o.GetName()), func(o T) bool { return !exists(o) })
}

// reason waits until a condition has this status and reason, and returns its message.
func (w *world) reason(t *testing.T, intent *volumesv1alpha1.VolumeAttachmentIntent, conditionType string, value metav1.ConditionStatus, reason string) string {
	t.Helper()
	var found *metav1.Condition
	until(t, w, intent, fmt.Sprintf("intent %s has %s=%s, %s", intent.Name, conditionType, value, reason), func(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
		found = meta.FindStatusCondition(i.Status.Conditions, conditionType)
		return exists(i) && found != nil && found.Status == value && found.Reason == reason
	})
	return found.Message
}

func (w *world) attached(t *testing.T, intent *volumesv1alpha1.VolumeAttachmentIntent) {
	t.Helper()
	w.reason(t, intent, volumesv1alpha1.ConditionAttached, metav1.ConditionTrue, volumesv1alpha1.ReasonAttached)
}

func uniqueName(claim string) string { return volume.UniqueName(driverName, "vol-"+claim) }

func attachmentOf(claim, node string) *storagev1.VolumeAttachment {
	return &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: volume.AttachmentName(driverName, "vol-"+claim, node)}}
}

func stateOf(node string) *volumesv1alpha1.NodeVolumeState {
	return &volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{Name: node}}
}
