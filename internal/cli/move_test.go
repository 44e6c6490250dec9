/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/explain/facts"
	"github.com/hawser-io/hawser/internal/relocate"
	"github.com/hawser-io/hawser/test/apiserver"
)

// fakeManager resolves intents, releases those that are deleted, and reports the last one on its node as Ready: what
// manager and agents do together.
type fakeManager struct {
	client client.WithWatch
	// refuse is the reason with which new intents are refused; empty for none.
	refuse string
	// other is the PersistentVolume that the claim of new intents has now; empty for pv-1.
	other string
	// hold keeps deleted intents.
	hold bool
	// before is called before a new intent is resolved; nil for nothing.
	before func(context.Context) error
	// seen are the creations and deletions in their order.
	seen []string
}

// start runs the manager until the returned function has ended it.
func (m *fakeManager) start(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w, err := m.client.Watch(ctx, newIntents())
	if err != nil {
		t.Fatal(err)
	}
	var done sync.WaitGroup
	done.Go(func() {
		for event := range w.ResultChan() {
			if err := m.reconcile(ctx, event); err != nil && ctx.Err() == nil {
				t.Errorf("the fake manager: %v", err)
			}
		}
	})
	return func() {
		cancel()
		w.Stop()
		done.Wait()
	}
}

func (m *fakeManager) reconcile(ctx context.Context, event watch.Event) error {
	intent, ok := event.Object.(*volumesv1alpha1.VolumeAttachmentIntent)
	if !ok {
		return nil
	}
	if event.Type == watch.Added {
		m.seen = append(m.seen, "created "+intent.Name)
	}
	switch {
	case event.Type == watch.Deleted:
		return m.grant(ctx)
	case intent.DeletionTimestamp != nil && len(intent.Finalizers) > 0:
		m.seen = append(m.seen, "deleted "+intent.Name)
		if m.hold {
			return nil
		}
		intent.Finalizers = nil
		return ignoreConflict(m.client.Update(ctx, intent))
	}
	if meta.FindStatusCondition(intent.Status.Conditions, volumesv1alpha1.ConditionResolved) != nil {
		return nil
	}
	if m.before != nil {
		if err := m.before(ctx); err != nil {
			return err
		}
	}
	status, reason := metav1.ConditionTrue, "Resolved"
	if m.refuse != "" {
		status, reason = metav1.ConditionFalse, m.refuse
	}
	if err := m.set(ctx, intent, volumesv1alpha1.ConditionResolved, status, reason); err != nil || m.refuse != "" {
		return err
	}
	return m.holdBack(ctx, intent)
}

// holdBack reports that an intent waits for the release by the one that came first.
func (m *fakeManager) holdBack(ctx context.Context, intent *volumesv1alpha1.VolumeAttachmentIntent) error {
	list := newIntents()
	if err := m.client.List(ctx, list); err != nil || len(list.Items) == 1 {
		return err
	}
	return m.set(ctx, intent, volumesv1alpha1.ConditionAttached, metav1.ConditionFalse, volumesv1alpha1.ReasonVolumeInUse)
}

// grant reports the only intent that is left as Ready.
func (m *fakeManager) grant(ctx context.Context) error {
	list := newIntents()
	if err := m.client.List(ctx, list); err != nil {
		return err
	}
	for i := range list.Items {
		if err := m.set(ctx, &list.Items[i], volumesv1alpha1.ConditionReady, metav1.ConditionTrue, "Ready"); err != nil {
			return err
		}
	}
	return nil
}

func (m *fakeManager) set(ctx context.Context, intent *volumesv1alpha1.VolumeAttachmentIntent, kind string,
	status metav1.ConditionStatus, reason string) error {
	intent.Status.ObservedGeneration = intent.Generation
	if intent.Status.VolumeName == "" {
		intent.Status.VolumeName = cmp.Or(m.other, "pv-1")
		intent.Status.UniqueVolumeName = "kubernetes.io/csi/disk.example.com^handle-1"
	}
	meta.SetStatusCondition(&intent.Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason})
	return ignoreConflict(m.client.Status().Update(ctx, intent))
}

// ignoreConflict ignores that the intent has changed, because the watch delivers it again.
func ignoreConflict(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// intents are the names of the intents that exist, with a * for one that is being deleted.
func intents(t *testing.T, c client.Client) string {
	t.Helper()
	list := newIntents()
	if err := c.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := range list.Items {
		name := list.Items[i].Name
		if list.Items[i].DeletionTimestamp != nil {
			name += "*"
		}
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

var moveToB = []string{"move", "data", "--to", "node-b", "-n", "shop"}

func TestAMoveCreatesTheReplacementBeforeItDeletesTheIntent(t *testing.T) {
	for name, args := range map[string][]string{
		"move":  moveToB,
		"drain": {"drain", "node-a", "--to", "node-b"},
	} {
		t.Run(name, func(t *testing.T) {
			config, c := apiserver.Borrow(t)
			world(t).create(t, c)
			m := &fakeManager{client: c}
			stop := m.start(t)
			stdout, stderr, exit := run(t, config, args...)
			got := intents(t, c)
			if exit != Fine || got != "data-on-node-a" || !strings.Contains(stdout, "Nothing was changed") {
				t.Errorf("without --yes: exit code %d, intents %q, stderr %q, stdout:\n%s\nwant %d and no change",
					exit, got, stderr, stdout, Fine)
			}
			stdout, stderr, exit = run(t, config, append(args, "--yes", "-o", "json")...)
			stop()
			var result struct {
				Kind  string
				Items []outcome
			}
			if err := json.Unmarshal([]byte(stdout), &result); err != nil {
				t.Fatalf("the report is no JSON: %v\n%s", err, stdout)
			}
			if exit != Fine || len(result.Items) != 1 || result.Items[0].State != relocate.Done {
				t.Errorf("exit code %d, report %+v, want %d and one intent that is Done; stderr:\n%s", exit, result, Fine, stderr)
			}
			want := "created data-on-node-a, created data-on-node-b, deleted data-on-node-a"
			if got = strings.Join(m.seen, ", "); got != want || intents(t, c) != "data-on-node-b" {
				t.Errorf("the API server saw: %s, and has %s; want: %s", got, intents(t, c), want)
			}
			if !strings.Contains(stderr, "created intent shop/data-on-node-b") {
				t.Errorf("stderr has no progress: %q", stderr)
			}
			if _, stderr, exit = run(t, config, append(args, "--yes")...); exit != Fine {
				t.Errorf("once more: exit code %d, stderr %q, want %d: there is nothing left to do", exit, stderr, Fine)
			}
		})
	}
}

// onText ends a context once a text was written.
type onText struct {
	bytes.Buffer
	text string
	then context.CancelFunc
}

func (o *onText) Write(p []byte) (int, error) {
	n, err := o.Buffer.Write(p)
	if strings.Contains(o.String(), o.text) {
		o.then()
	}
	return n, err
}

// interrupted runs a command that is interrupted as soon as its stderr has a text.
func interrupted(t *testing.T, config *rest.Config, text string, args ...string) (stdout, stderr string, exit int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out bytes.Buffer
	errOut := &onText{text: text, then: cancel}
	args = append(args, "--kubeconfig", apiserver.Kubeconfig(t, config))
	exit = Run(ctx, args, genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: errOut})
	return out.String(), errOut.String(), exit
}

func TestAMoveGoesOnWhereItWasInterrupted(t *testing.T) {
	for name, tt := range map[string]struct {
		at string
		// hold keeps the deleted intent until the second call.
		hold bool
		// left are the intents after the interruption.
		left string
	}{
		"after the replacement was created": {"created intent", true, "data-on-node-a data-on-node-b"},
		"while the node releases":           {"waits for its node", true, "data-on-node-a* data-on-node-b"},
	} {
		t.Run(name, func(t *testing.T) {
			config, c := apiserver.Borrow(t)
			world(t).create(t, c)
			m := &fakeManager{client: c, hold: tt.hold}
			if strings.HasPrefix(tt.at, "created") {
				m.refuse = "Unknown" // the manager has not answered when the move ends
			}
			stop := func() {}
			if m.refuse == "" {
				stop = m.start(t)
			}
			stdout, stderr, exit := interrupted(t, config, tt.at, append(moveToB, "--yes")...)
			stop()
			if got := intents(t, c); exit != Failed || got != tt.left || !strings.Contains(stderr, "goes on where") {
				t.Fatalf("interrupted: exit code %d, intents %s, want %d and %s; stderr:\n%s\nstdout:\n%s",
					exit, got, Failed, tt.left, stderr, stdout)
			}
			m = &fakeManager{client: c}
			defer m.start(t)()
			stdout, stderr, exit = run(t, config, append(moveToB, "--yes")...)
			if got := intents(t, c); exit != Fine || got != "data-on-node-b" {
				t.Errorf("again: exit code %d, intents %s, want %d and data-on-node-b; stderr:\n%s\nstdout:\n%s",
					exit, got, Fine, stderr, stdout)
			}
		})
	}
}

func TestAnIntentWhoseReplacementIsRefusedStays(t *testing.T) {
	t.Run("by the manager", func(t *testing.T) {
		config, c := apiserver.Borrow(t)
		world(t).create(t, c)
		m := &fakeManager{client: c, refuse: "NodeAffinityMismatch"}
		defer m.start(t)()
		stdout, _, exit := run(t, config, append(moveToB, "--yes")...)
		if got := intents(t, c); exit != Findings || got != "data-on-node-a data-on-node-b" ||
			!strings.Contains(stdout, "NodeAffinityMismatch") {
			t.Errorf("exit code %d, intents %s, want %d and both; stdout:\n%s", exit, got, Findings, stdout)
		}
	})
	t.Run("by the API server", func(t *testing.T) {
		config, c := apiserver.Borrow(t)
		world(t).create(t, c)
		taken := world(t)
		taken.documents = []string{strings.NewReplacer("name: data-on-node-a", "name: data-on-node-b", "claimName: data",
			"claimName: other", "data-on-node-a-uid", "other-uid").Replace(last(world(t).documents))}
		taken.create(t, c)
		stdout, _, exit := run(t, config, append(moveToB, "--yes")...)
		if got := intents(t, c); exit != Findings || got != "data-on-node-a data-on-node-b" ||
			!strings.Contains(stdout, "already exists") {
			t.Errorf("exit code %d, intents %s, want %d and no change; stdout:\n%s", exit, got, Findings, stdout)
		}
	})
	t.Run("by a check", func(t *testing.T) {
		config, c := apiserver.Borrow(t)
		world(t, theIntent, theIntent+"  labels: {kustomize.toolkit.fluxcd.io/name: apps}\n").create(t, c)
		stdout, _, exit := run(t, config, append(moveToB, "--yes")...)
		if got := intents(t, c); exit != Findings || got != "data-on-node-a" || !strings.Contains(stdout, "Flux") {
			t.Errorf("exit code %d, intents %s, want %d and no change; stdout:\n%s", exit, got, Findings, stdout)
		}
	})
}

// The plan was made before the replacement existed. What happens until the source is deleted counts too.
func TestAnIntentStaysIfItsTargetOrItsNodeFailsBeforeTheDeletion(t *testing.T) {
	// The record of the writes goes too, because it has the time of the test.
	const ended = `[{"op":"replace","path":"/spec/renewTime","value":"2020-01-01T00:00:00.000000Z"},
		{"op":"replace","path":"/metadata/managedFields","value":[{}]}]`
	for name, tt := range map[string]struct{ lease, want string }{
		"the agent ends":             {"hawser-agent-node-b", "the agent of node node-b does not renew its Lease"},
		"the agent that has it ends": {"hawser-agent-node-a", "the agent of node node-a does not renew its Lease"},
		"the manager ends":           {"hawser-manager", "no manager renews its Lease"},
	} {
		t.Run(name, func(t *testing.T) {
			config, c := apiserver.Borrow(t)
			world(t).create(t, c)
			lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "hawser-system", Name: tt.lease}}
			m := &fakeManager{client: c, before: func(ctx context.Context) error {
				return c.Patch(ctx, lease, client.RawPatch(types.JSONPatchType, []byte(ended)))
			}}
			defer m.start(t)()
			stdout, stderr, exit := run(t, config, append(moveToB, "--yes")...)
			if got := intents(t, c); exit != Findings || got != "data-on-node-a data-on-node-b" ||
				!strings.Contains(stdout, tt.want) {
				t.Errorf("exit code %d, intents %s, want %d, both and %q; stderr:\n%s\nstdout:\n%s",
					exit, got, Findings, tt.want, stderr, stdout)
			}
		})
	}
}

// The source was planned to be dropped while all was well. Each change happens before it is deleted.
func TestAnIntentIsDroppedOnlyWhileItsNodeCanReleaseIt(t *testing.T) {
	source := decodeObject(t, last(world(t).documents)).(*volumesv1alpha1.VolumeAttachmentIntent)
	for name, tt := range map[string]struct {
		changes []string
		denied  string
		accept  bool
		want    string // why it stays; empty if it is deleted
	}{
		"all is well": {},
		"the agent ends": {changes: []string{"holderIdentity: node-a, leaseDurationSeconds: 40",
			"holderIdentity: node-a, leaseDurationSeconds: -60"}, accept: true,
			want: "the agent of node node-a does not renew its Lease"},
		"the Node goes": {changes: []string{"metadata: {name: node-a, labels", "metadata: {name: node-x, labels"},
			accept: true, want: "node node-a does not exist any more"},
		"the manager ends": {changes: []string{"holderIdentity: hawser-manager-1, leaseDurationSeconds: 15",
			"holderIdentity: hawser-manager-1, leaseDurationSeconds: -60"}, accept: true,
			want: "no manager renews its Lease"},
		"the agent of another node ends": {changes: []string{"holderIdentity: node-b, leaseDurationSeconds: 40",
			"holderIdentity: node-b, leaseDurationSeconds: -60"}},
		"Leases may not be read":             {denied: "Lease", want: "cannot be read"},
		"Leases may not be read, by consent": {denied: "Lease", accept: true},
	} {
		t.Run(name, func(t *testing.T) {
			reader := newFakeReader(t, world(t, tt.changes...))
			c := reader.(fakeReader).Client.(client.WithWatch)
			if tt.denied != "" {
				reader = denied{reader, tt.denied}
			}
			o := &options{}
			o.ErrOut = io.Discard
			m := &mover{options: o, client: c, accept: tt.accept,
				gatherer: &facts.Gatherer{Reader: reader, System: "hawser-system", Now: time.Now}}
			err := m.delete(t.Context(), &movement{outcome: outcome{Intent: facts.Key(source)}, source: source, drop: true})
			want := "data-on-node-a"
			if tt.want == "" {
				want += "*"
			}
			if got := intents(t, c); got != want || (err == nil) != (tt.want == "") ||
				err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("intents %s, error %v; want %s and %q", got, err, want, tt.want)
			}
		})
	}
}

func TestAnIntentWhoseReplacementGetsAnotherVolumeStays(t *testing.T) {
	config, c := apiserver.Borrow(t)
	world(t).create(t, c)
	m := &fakeManager{client: c, other: "pv-2"}
	defer m.start(t)()
	stdout, _, exit := run(t, config, append(moveToB, "--yes")...)
	if got := intents(t, c); exit != Findings || got != "data-on-node-a data-on-node-b" ||
		!strings.Contains(stdout, "the replacement has volume pv-2") {
		t.Errorf("exit code %d, intents %s, want %d and both; stdout:\n%s", exit, got, Findings, stdout)
	}
}

func last(list []string) string { return list[len(list)-1] }

func TestAMoveThatTakesLongerThanItsTimeoutCanGoOn(t *testing.T) {
	config, c := apiserver.Borrow(t)
	world(t).create(t, c)
	stdout, stderr, exit := run(t, config, append(moveToB, "--yes", "--timeout", "10s")...)
	if got := intents(t, c); exit != TimedOut || got != "data-on-node-a data-on-node-b" ||
		!strings.Contains(stdout, "AwaitResolved") || !strings.Contains(stderr, "goes on where") {
		t.Errorf("without a manager: exit code %d, intents %s, want %d and both; stderr:\n%s\nstdout:\n%s",
			exit, got, TimedOut, stderr, stdout)
	}
}

func TestADrainDeletesIntentsOnlyIfToldTo(t *testing.T) {
	config, c := apiserver.Borrow(t)
	world(t).create(t, c)
	m := &fakeManager{client: c}
	defer m.start(t)()
	stdout, _, exit := run(t, config, "drain", "node-a", "--yes")
	if got := intents(t, c); exit != Findings || got != "data-on-node-a" || !strings.Contains(stdout, "--delete-intents") {
		t.Errorf("exit code %d, intents %q, want %d and no change; stdout:\n%s", exit, got, Findings, stdout)
	}
	stdout, stderr, exit := run(t, config, "drain", "node-a", "--yes", "--delete-intents")
	if got := intents(t, c); exit != Fine || got != "" {
		t.Errorf("with --delete-intents: exit code %d, intents %q, want %d and none; stderr:\n%s\nstdout:\n%s",
			exit, got, Fine, stderr, stdout)
	}
}

// newCommands with arguments that are right on a cluster with the fixture.
var newCommands = map[string][]string{
	"plan move":  {"plan", "move", "data", "--to", "node-b", "-n", "shop"},
	"move":       moveToB,
	"move --yes": append(moveToB, "--yes"),
	"drain":      {"drain", "node-a", "--to", "node-b"},
	"plan drain": {"plan", "drain", "node-a"},
	"plan fence": {"plan", "fence", "node-a"},
	"why":        {"why", "pvc", "data", "-n", "shop", "--watch"},
	"top":        {"top", "--watch"},
}

func TestWithoutRightsOrHawserEachCommandSaysSo(t *testing.T) {
	config, c := apiserver.Borrow(t)
	// Without the finalizer the kinds can be deleted.
	world(t, "  finalizers: [volumes.hawser.io/release]\n", "").create(t, c)
	for name, args := range newCommands {
		for _, format := range []string{"", "json"} {
			stdout, stderr, exit := run(t, as(config, "stranger"), append(args, "-o", format)...)
			if exit != Failed || stdout != "" || !strings.Contains(stderr, "you may not read ") {
				t.Errorf("%s -o %q without rights: exit code %d, stdout %q, stderr %q; want %d and what may not be read",
					name, format, exit, stdout, stderr, Failed)
			}
		}
	}
	deleteKinds(t, config)
	delete(newCommands, "why") // it explains claims without Hawser too
	for name, args := range newCommands {
		for _, format := range []string{"", "json"} {
			stdout, stderr, exit := run(t, config, append(args, "-o", format)...)
			if exit != Failed || stdout != "" || !strings.Contains(stderr, "Hawser is not installed in this cluster") {
				t.Errorf("%s -o %q without Hawser: exit code %d, stdout %q, stderr %q; want %d and that it is not installed",
					name, format, exit, stdout, stderr, Failed)
			}
		}
	}
}

func TestAWrongNameOrArgumentOfAMoveIsExplained(t *testing.T) {
	config, c := apiserver.Borrow(t)
	world(t, "", strings.NewReplacer("data-on-node-a", "data-on-node-c", "nodeName: node-a", "nodeName: node-c").
		Replace(last(world(t).documents))).create(t, c)
	for _, tt := range []struct{ args, want string }{
		{"plan move wrong --to node-b -n shop", "there is no PersistentVolumeClaim wrong in namespace shop"},
		{"plan move data --to wrong -n shop", "there is no Node wrong"},
		{"move wrong --to node-b -n shop --yes", "there is no PersistentVolumeClaim wrong in namespace shop"},
		{"move data --to wrong -n shop --yes", "there is no Node wrong"},
		{"move data -n shop", "required flag(s) \"to\""},
		{"move data --to node-b -n shop", "choose one with --from"},
		{"drain wrong", "there is no Node wrong"},
		{"drain node-a --to wrong --yes", "there is no Node wrong"},
		{"drain node-a --to node-a", "the node node-a itself"},
		{"drain node-a --to node-b --delete-intents", "were all set"},
		{"plan move data --to node-b -n shop -o xml", "want json, yaml, wide, name, jsonpath="},
		{"why -f x --watch", "--watch is for objects"},
		{"why pod wrong --watch", "there is no Pod wrong"},
	} {
		for _, format := range []string{"", "json"} {
			args := strings.Fields(tt.args)
			if !strings.Contains(tt.args, "-o xml") {
				args = append(args, "-o", format)
			}
			stdout, stderr, exit := run(t, config, args...)
			if exit != Failed || stdout != "" || !strings.Contains(stderr, tt.want) {
				t.Errorf("%s -o %q: exit code %d, stdout %q, stderr %q; want %d and %q",
					tt.args, format, exit, stdout, stderr, Failed, tt.want)
			}
		}
	}
}

// A user of one namespace may move an intent there, if the user accepts that nodes and volumes cannot be checked.
func TestWhatCannotBeCheckedHasToBeAccepted(t *testing.T) {
	config, c := apiserver.Borrow(t)
	world(t).create(t, c)
	grant(t, c, "dev", []string{"", "volumes.hawser.io"},
		[]string{"pods", "persistentvolumeclaims", "volumeattachmentintents"},
		[]string{"get", "list", "watch", "create", "delete"})
	m := &fakeManager{client: c}
	defer m.start(t)()
	args := slices.Concat(moveToB, []string{"--yes"})
	stdout, _, exit := run(t, as(config, "dev"), args...)
	if got := intents(t, c); exit != Findings || got != "data-on-node-a" || !strings.Contains(stdout, "cannot be read") {
		t.Errorf("exit code %d, intents %s, want %d and no change; stdout:\n%s", exit, got, Findings, stdout)
	}
	stdout, stderr, exit := run(t, as(config, "dev"), append(args, "--accept-unknown")...)
	if got := intents(t, c); exit != Fine || got != "data-on-node-b" {
		t.Errorf("with --accept-unknown: exit code %d, intents %s, want %d and data-on-node-b; stderr:\n%s\nstdout:\n%s",
			exit, got, Fine, stderr, stdout)
	}
}

func TestExitCodesOfWaits(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want int
	}{
		{waitedError{errInterrupted}, TimedOut}, {watchedError{}, TimedOut}, {errInterrupted, Failed},
		{errors.Join(findingsError{}), Findings},
	} {
		if got := code(tt.err); got != tt.want {
			t.Errorf("exit code of %q is %d, want %d", tt.err, got, tt.want)
		}
	}
}
