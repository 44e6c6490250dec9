/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/operator/condition"
	"github.com/hawser-io/hawser/internal/operator/render"
	"github.com/hawser-io/hawser/internal/operator/rollout"
)

// DefaultDeadline is how long a pod may take to become ready before the VolumeManager is Degraded.
const DefaultDeadline = 10 * time.Minute

// Options of the operator.
type Options struct {
	// Namespace of the installation, and Version of the release.
	Namespace, Version string
	// Images of the release. They may be empty; then the VolumeManager has to name its own.
	Images volumesv1alpha1.Images
	// InitialSpec of the VolumeManager that the operator makes at its first start. An installation that it finds is
	// continued as it is.
	InitialSpec map[string]any
	// Kinds of the cluster.
	Kinds Kinds
	Clock clock.PassiveClock
	// Deadline is DefaultDeadline by default.
	Deadline time.Duration
	// Rollout takes what is observed for the metrics; nil exports nothing.
	Rollout *rollout.Metrics
	// Recount is DefaultRecount by default.
	Recount time.Duration
	// FenceRecheck is DefaultFenceRecheck by default.
	FenceRecheck time.Duration
	// Names of controllers are unique in a process, except in tests.
	SkipNameValidation bool
}

// Reconciler reconciles the VolumeManager.
type Reconciler struct {
	Options
	// Client writes. Cache reads what the operator watches, Live everything else.
	Client   client.Client
	Cache    cache.Cache
	Live     client.Reader
	Mapper   meta.RESTMapper
	Recorder events.EventRecorder

	controller controller.Controller
	// guards caches the operator's own objects.
	guards   guards
	optional []*optional
	// applied has what this process last applied, by identity.
	applied map[string]applied
	// adopted is the UID of the VolumeManager for which this process has pruned the rights of an installation without the
	// operator.
	adopted types.UID
	// sources of fences, as they were examined last.
	sources fenceSources
	// started is true once this process has found or made the VolumeManager.
	started bool
	// counted is when a number was last written into the marks.
	counted time.Time
	// podsWatched is true once a removal has begun in this process.
	podsWatched bool
}

// Register adds the operator to a manager.
func Register(mgr manager.Manager, o Options) error {
	if o.Deadline == 0 {
		o.Deadline = DefaultDeadline
	}
	if o.Recount == 0 {
		o.Recount = DefaultRecount
	}
	if o.FenceRecheck == 0 {
		o.FenceRecheck = DefaultFenceRecheck
	}
	served, err := discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("asking for what the API server serves: %w", err)
	}
	guards, err := newGuards(mgr, o.Namespace)
	if err != nil {
		return err
	}
	r := &Reconciler{
		Options: o, Client: mgr.GetClient(), Cache: mgr.GetCache(), Live: mgr.GetAPIReader(), Mapper: mgr.GetRESTMapper(),
		Recorder: mgr.GetEventRecorder("hawser-operator"), optional: newOptional(), applied: map[string]applied{},
		guards: guards, sources: fenceSources{discovery: served},
	}
	c, err := controller.New("volumemanager", mgr, controller.Options{Reconciler: r, MaxConcurrentReconciles: 1,
		SkipNameValidation: ptr.To(o.SkipNameValidation)})
	if err != nil {
		return fmt.Errorf("creating the controller: %w", err)
	}
	r.controller = c
	return r.watchAlways(c)
}

// Reconcile reconciles the whole installation.
func (r *Reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	// A kind that is not served yet must not keep the operator from mending the rest.
	watchFailure := r.watchOptional(ctx)
	if !r.serves(volumesv1alpha1.GroupVersion.WithKind("VolumeManager")) {
		return reconcile.Result{}, watchFailure
	}
	vm, err := r.fetch(ctx)
	if err == nil && vm == nil && r.podsWatched {
		err = r.liftGates(ctx)
	}
	if err == nil && vm != nil {
		err = r.claim(ctx, vm)
	}
	if err != nil || vm == nil {
		return reconcile.Result{}, errors.Join(err, watchFailure)
	}
	carryOut := r.keep
	if vm.DeletionTimestamp != nil {
		carryOut = remover{r}.dismantle
	}
	again, err := carryOut(ctx, vm)
	if apierrors.IsConflict(err) && vm.DeletionTimestamp == nil {
		err = nil // The event of the newer version leads here again. A removal writes to objects that are not watched.
	}
	return reconcile.Result{RequeueAfter: again}, errors.Join(err, watchFailure)
}

// fetch returns the VolumeManager, or nil. At the first start it makes one. Later a missing VolumeManager was
// deleted: everything then stays as it is.
func (r *Reconciler) fetch(ctx context.Context) (*volumesv1alpha1.VolumeManager, error) {
	vm := &volumesv1alpha1.VolumeManager{}
	err := r.Cache.Get(ctx, types.NamespacedName{Name: volumesv1alpha1.VolumeManagerName}, vm)
	if !apierrors.IsNotFound(err) {
		r.started = r.started || err == nil
		return vm, err
	}
	if r.started {
		return nil, nil
	}
	return nil, creator{r}.create(ctx)
}

// claim makes the VolumeManager this operator's own. An operator of another namespace changes nothing: it would take
// over the rights, and install a second manager without the locks of the first. The status is that of the operator
// which it names, so the refusal is an event.
func (r *Reconciler) claim(ctx context.Context, vm *volumesv1alpha1.VolumeManager) error {
	switch vm.Status.Namespace {
	case r.Namespace:
		return nil
	case "":
		vm.Status.Namespace = r.Namespace
		return r.Client.Status().Update(ctx, vm)
	}
	err := fmt.Errorf("VolumeManager %s belongs to the operator in namespace %s: the one in namespace %s changes "+
		"nothing. Uninstall one of them (docs/install.md#another-namespace-or-name)", vm.Name, vm.Status.Namespace,
		r.Namespace)
	r.Recorder.Eventf(vm, nil, corev1.EventTypeWarning, "InstalledElsewhere", "Reconcile", "%v", err)
	return reconcile.TerminalError(err)
}

// keep the installation as the VolumeManager asks for.
func (r *Reconciler) keep(ctx context.Context, vm *volumesv1alpha1.VolumeManager) (time.Duration, error) {
	u, err := r.findUsed(ctx, vm)
	if err != nil {
		return 0, err
	}
	return r.install(ctx, vm, u, removal{})
}

// install applies what the VolumeManager asks for and reports the result. It returns when to do so again.
func (r *Reconciler) install(ctx context.Context, vm *volumesv1alpha1.VolumeManager, u used, leaving removal,
) (time.Duration, error) {
	recount, problems, err := r.protect(ctx, vm, u)
	if err != nil {
		return 0, err
	}
	spec, broken := withoutBroken(vm.Spec)
	in := render.Input{Spec: spec, Namespace: r.Namespace, Images: r.images(vm), Serves: r.serves,
		Draining: leaving.draining}
	if in.Tainted, err = r.tainted(ctx); err != nil {
		return 0, err
	}
	wanted, held, err := r.render(ctx, in, u)
	if err != nil {
		return 0, err
	}
	problems = slices.Concat(problems, held, missingImages(in.Images))
	present, failure := r.applyAll(ctx, vm, wanted)
	problems = append(problems, refused(failure)...)
	facts, err := r.observe(ctx, vm, present)
	if err != nil {
		return 0, errors.Join(failure, err)
	}
	facts.Problems = problems
	facts.MonitorsWanted, facts.MonitorsServed = in.Monitors()
	// What is not known of a source keeps nothing else from being reported.
	fences, unknown := r.fences(ctx, sourcesOf(spec), broken)
	facts.Fences = fences
	if failure == nil && len(missingImages(in.Images)) == 0 && facts.Manager.Replaced() {
		if failure = r.prune(ctx, vm, wanted, facts.Agents.Replaced()); failure == nil {
			failure = r.unlabelNodes(ctx, spec)
		}
		facts.Problems = append(facts.Problems, refused(failure)...)
	}
	decision := condition.Decide(facts)
	r.Rollout.Observe(facts, !progressing(decision))
	decision.Again = condition.Sooner(decision.Again, recount)
	if leaving.condition != nil {
		decision.Conditions = append(decision.Conditions, *leaving.condition)
	}
	return decision.Again, errors.Join(failure, unknown, r.report(ctx, vm, facts, decision))
}

// refused is the problem that the API server did not let the operator apply or delete something. A conflict is none:
// the event of the newer version leads here again.
func refused(failure error) []condition.Problem {
	if failure == nil || apierrors.IsConflict(failure) {
		return nil
	}
	return []condition.Problem{{Reason: volumesv1alpha1.ReasonApplyFailed, Message: listed(failure)}}
}

// longestList of errors or names in a condition, in bytes. The API server refuses a message of more than 32768.
const longestList = 4096

// listed are errors for a condition. They are sorted: caches list objects in any order, and each write of another text
// would lead to a reconcile at once, without the backoff.
func listed(err error) string {
	lines := strings.Split(err.Error(), "\n")
	slices.Sort(lines)
	return cut(strings.Join(lines, "; "))
}

// cut shortens a list in a condition.
func cut(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), longestList)], "")
}

// images of the VolumeManager, else of the release.
func (r *Reconciler) images(vm *volumesv1alpha1.VolumeManager) volumesv1alpha1.Images {
	images := vm.Spec.Images
	if images.Manager == "" {
		images.Manager = r.Images.Manager
	}
	if images.Agent == "" {
		images.Agent = r.Images.Agent
	}
	return images
}

func missingImages(images volumesv1alpha1.Images) []condition.Problem {
	var problems []condition.Problem
	for _, image := range []struct{ field, variable, value string }{
		{"spec.images.manager", "RELATED_IMAGE_MANAGER", images.Manager},
		{"spec.images.agent", "RELATED_IMAGE_AGENT", images.Agent},
	} {
		if image.value == "" {
			problems = append(problems, condition.Problem{Reason: volumesv1alpha1.ReasonImageMissing, Message: fmt.Sprintf(
				"neither %s nor the operator's environment variable %s names an image", image.field, image.variable)})
		}
	}
	return problems
}

func progressing(d condition.Decision) bool {
	return meta.IsStatusConditionTrue(d.Conditions, volumesv1alpha1.ConditionProgressing)
}

// prunable kinds. A workload is always wanted.
func (r *Reconciler) prunable() []schema.GroupVersionKind {
	var kinds []schema.GroupVersionKind
	for _, kind := range r.Kinds.watched {
		if kind.Group != appsv1.GroupName {
			kinds = append(kinds, kind)
		}
	}
	for _, kind := range render.Monitoring {
		if r.serves(kind) {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// report writes the status if it changed.
func (r *Reconciler) report(ctx context.Context, vm *volumesv1alpha1.VolumeManager, facts condition.Facts,
	decision condition.Decision) error {
	after := vm.DeepCopy()
	after.Status.ObservedGeneration, after.Status.Version = vm.Generation, r.Version
	after.Status.Manager, after.Status.Agents = counts(facts.Manager), counts(facts.Agents)
	for _, c := range decision.Conditions {
		c.ObservedGeneration = vm.Generation
		c.LastTransitionTime.Time = r.Clock.Now()
		meta.SetStatusCondition(&after.Status.Conditions, c)
	}
	if !facts.MonitorsWanted {
		meta.RemoveStatusCondition(&after.Status.Conditions, volumesv1alpha1.ConditionMonitored)
	}
	if len(sourcesOf(vm.Spec)) == 0 {
		meta.RemoveStatusCondition(&after.Status.Conditions, volumesv1alpha1.ConditionFenceSourcesReady)
	}
	if equality.Semantic.DeepEqual(vm.Status, after.Status) {
		return nil
	}
	r.announce(vm, after)
	err := r.Client.Status().Update(ctx, after)
	if apierrors.IsConflict(err) {
		return nil // The event of the newer version leads here again.
	}
	return client.IgnoreNotFound(err)
}

func counts(w condition.Workload) *volumesv1alpha1.WorkloadStatus {
	return &volumesv1alpha1.WorkloadStatus{Desired: w.Desired, Updated: w.Updated, Ready: w.Ready}
}
