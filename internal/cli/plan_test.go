/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package cli

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/explain/facts"
	"github.com/hawser-io/hawser/internal/relocate"
)

// world is the fixture of a move with changes: each replaces a text, or adds a document if its old text is empty.
func world(t *testing.T, changes ...string) fixture {
	t.Helper()
	f := readFixture(t, "testdata/move/ready.yaml", time.Now())
	f.lasting = true
	for i := 0; i+1 < len(changes); i += 2 {
		before, after := changes[i], changes[i+1]
		if before == "" {
			f.documents = append(f.documents, after)
			continue
		}
		found := false
		for j := range f.documents {
			found = found || strings.Contains(f.documents[j], before)
			f.documents[j] = strings.ReplaceAll(f.documents[j], before, after)
		}
		if !found {
			t.Fatalf("the fixture has no %q", before)
		}
	}
	return f
}

// podOnA uses the claim on the node that the volume leaves.
const podOnA = `
apiVersion: v1
kind: Pod
metadata: {namespace: shop, name: web}
spec:
  nodeName: node-a
  containers: [{name: web, image: web}]
  volumes: [{name: data, %s}]
status: {phase: %s}`

const (
	byClaim     = "persistentVolumeClaim: {claimName: data}"
	byDirectory = "csi: {driver: volumes.hawser.io, volumeAttributes: {intents: app=web}}"
	byIntent    = "csi: {driver: volumes.hawser.io, volumeAttributes: {intent: data-on-node-a}}"
	// theIntent is a part of the fixture's intent, to which labels and owners are added.
	theIntent = "  name: data-on-node-a\n"
	limited   = "- {name: disk.example.com, nodeID: node-b, allocatable: {count: 1}}"
)

// lineOnA is a part of the state of the node that the volume leaves, to which the line of the volume is added.
const lineOnA = "  drivers: [{name: disk.example.com, nodeID: id-in-node-a}]\n"

func lineFailing(operation string) string {
	return "  volumes: [{volumeName: kubernetes.io/csi/disk.example.com^handle-1, inUse: true, " +
		"error: {operation: " + operation + ", message: out of luck}}]\n"
}

// pinnedTo is a change of the fixture: the intent keeps to a claim.
func pinnedTo(uid string) []string {
	return []string{"  observedGeneration: 1\n  volumeName: pv-1\n",
		"  observedGeneration: 1\n  claimUID: " + uid + "\n  volumeName: pv-1\n"}
}

func otherAttachment(node, pv string) string {
	return fmt.Sprintf(`
apiVersion: storage.k8s.io/v1
kind: VolumeAttachment
metadata: {name: %s}
spec: {attacher: disk.example.com, nodeName: %s, source: {persistentVolumeName: %s}}
status: {attached: true}`, volume.AttachmentName("disk.example.com", "handle-of-"+pv, node), node, pv)
}

// planCases are situations, and what a plan finds in them.
var planCases = map[string]struct {
	changes []string
	verdict relocate.Verdict
	about   string
	want    string
}{
	"nothing is in the way": {nil, "", "", ""},
	"the claim is the same": {pinnedTo("claim-uid"), "", "", ""},
	"the claim was created again": {pinnedTo("first-uid"), relocate.Refused, "claim shop/data",
		"gets the volume of the new claim, and pv-1"},
	"a pod uses the claim":  {[]string{"", fmt.Sprintf(podOnA, byClaim, "Running")}, relocate.Hangs, "pods", "shop/web"},
	"a pod uses the intent": {[]string{"", fmt.Sprintf(podOnA, byIntent, "Running")}, relocate.Hangs, "pods", "shop/web"},
	"a pod that has ended":  {[]string{"", fmt.Sprintf(podOnA, byClaim, "Succeeded")}, "", "", ""},
	"the intent is a pod's": {[]string{theIntent, theIntent +
		"  ownerReferences: [{apiVersion: v1, kind: Pod, name: web, uid: u, controller: true}]\n"},
		relocate.Refused, "intent shop/data-on-node-a", "cordon its node"},
	"the intent is a set's": {[]string{theIntent, theIntent +
		"  ownerReferences: [{apiVersion: volumes.hawser.io/v1alpha1, kind: VolumeAttachmentIntentSet, " +
		"name: all, uid: u, controller: true}]\n"},
		relocate.Refused, "intent shop/data-on-node-a", "node selector of the set"},
	"the intent is Git's": {[]string{theIntent, theIntent + "  labels: {kustomize.toolkit.fluxcd.io/name: apps}\n"},
		relocate.Refused, "intent shop/data-on-node-a", "Flux would undo"},
	"the volume excludes the node": {[]string{"  capacity: {storage: 1Gi}",
		"  capacity: {storage: 1Gi}\n  nodeAffinity: " +
			"{required: {nodeSelectorTerms: [{matchExpressions: " +
			"[{key: kubernetes.io/hostname, operator: In, values: [node-a]}]}]}}"},
		relocate.Hangs, "node affinity", "excludes node node-b"},
	"the node has no driver": {[]string{"drivers: [{name: disk.example.com, nodeID: node-b}]",
		"drivers: [{name: other, nodeID: node-b}]"}, relocate.Hangs, "driver", "not registered on node node-b"},
	"the node is full": {[]string{"[{name: disk.example.com, nodeID: node-b}]",
		"\n  " + limited, "", otherAttachment("node-b", "pv-2")}, relocate.Hangs, "limit", "1 of 1 volumes"},
	"the node has room": {[]string{"[{name: disk.example.com, nodeID: node-b}]", "\n  " + limited}, "", "", ""},
	"another node has the volume too": {[]string{"", otherAttachment("node-c", "pv-1")}, relocate.Hangs, "holder",
		"node node-c holds"},
	"the node's agent is silent": {[]string{"holderIdentity: node-b, leaseDurationSeconds: 40",
		"holderIdentity: node-b, leaseDurationSeconds: -60"}, relocate.Hangs, "node node-b", "does not renew its Lease"},
	"no agent runs on the node": {[]string{"name: hawser-agent-node-b}", "name: hawser-agent-node-x}",
		"agentVersion: v0.1.0", "agentVersion: ''"}, relocate.Hangs, "node node-b", "no agent runs on node node-b"},
	"the node's agent does not know the driver": {[]string{"nodeID: id-in-node-b", "nodeID: id",
		"{name: disk.example.com, nodeID: id}", "{name: other, nodeID: id}"}, relocate.Hangs, "node node-b",
		"does not know driver disk.example.com"},
	"no manager runs": {[]string{"holderIdentity: hawser-manager-1, leaseDurationSeconds: 15",
		"holderIdentity: hawser-manager-1, leaseDurationSeconds: -60"}, relocate.Hangs, "manager", "no manager renews"},
	"an expansion of the volume failed": {[]string{lineOnA, lineOnA + lineFailing("expand")}, "", "", ""},
	"the unpublish of the volume fails": {[]string{lineOnA, lineOnA + lineFailing("unpublish")}, relocate.Hangs,
		"release by node node-a", "its unpublish fails: out of luck"},
	"a pod shows the intent in a directory": {[]string{theIntent, theIntent + "  labels: {app: web}\n",
		"", fmt.Sprintf(podOnA, byDirectory, "Running")}, relocate.Hangs, "pods", "shop/web"},
	"a directory that does not show the intent": {[]string{"", fmt.Sprintf(podOnA, byDirectory, "Running")}, "", "", ""},
	"the agent that has to release is silent": {[]string{"holderIdentity: node-a, leaseDurationSeconds: 40",
		"holderIdentity: node-a, leaseDurationSeconds: -60"}, relocate.Hangs, "release by node node-a",
		"does not renew its Lease"},
}

func checkPlan(t *testing.T, p *relocate.Plan, verdict relocate.Verdict, about, want string) {
	t.Helper()
	if verdict != "" {
		checkPlanned(t, p, verdict, about, want)
	} else if p.Findings() > 0 {
		t.Errorf("the plan finds %+v, want nothing", checksOf(p))
	}
}

func checksOf(p *relocate.Plan) []relocate.Check {
	checks := append([]relocate.Check{}, p.Checks...)
	for _, l := range p.Intents {
		checks = append(checks, l.Checks...)
	}
	return checks
}

func checkPlanned(t *testing.T, p *relocate.Plan, verdict relocate.Verdict, about, want string) {
	t.Helper()
	checks := checksOf(p)
	for _, c := range checks {
		if c.Verdict == verdict && c.About == about && strings.Contains(c.Text, want) {
			return
		}
	}
	t.Errorf("the plan finds %+v, want %s about %s: %s", checks, verdict, about, want)
}

// planMove plans the move of claim shop/data to node-b.
func planMove(t *testing.T, reader facts.Reader) *relocate.Plan {
	t.Helper()
	g := &facts.Gatherer{Reader: reader, System: "hawser-system", Now: time.Now}
	r, err := g.Move(t.Context(), facts.Ref{Kind: facts.KindClaim, Namespace: "shop", Name: "data"}, "node-b")
	if err != nil {
		t.Fatal(err)
	}
	p, err := relocate.Move(r, "", "")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestAPlanOfAMoveFindsWhatIsInTheWay(t *testing.T) {
	for name, tt := range planCases {
		t.Run(name, func(t *testing.T) {
			p := planMove(t, newFakeReader(t, world(t, tt.changes...)))
			checkPlan(t, p, tt.verdict, tt.about, tt.want)
		})
	}
}

// denied is an API server on which the user may not read a kind.
type denied struct {
	facts.Reader
	kind string
}

func (r denied) error(of any) error {
	_, kind, _ := strings.Cut(strings.TrimSuffix(fmt.Sprintf("%T", of), "List"), ".")
	if kind != r.kind {
		return nil
	}
	return apierrors.NewForbidden(schema.GroupResource{Resource: kind}, "", nil)
}

func (r denied) Get(ctx context.Context, at client.ObjectKey, into client.Object, options ...client.GetOption) error {
	if err := r.error(into); err != nil {
		return err
	}
	return r.Reader.Get(ctx, at, into, options...)
}

func (r denied) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	if err := r.error(into); err != nil {
		return err
	}
	return r.Reader.List(ctx, into, options...)
}

func (r denied) Attachments(ctx context.Context) ([]facts.Attachment, error) {
	if err := r.error(&storagev1.VolumeAttachment{}); err != nil {
		return nil, err
	}
	return r.Reader.Attachments(ctx)
}

// What may not be read might be in the way.
func TestAPlanOfAMoveDoesNotCallWellWhatItMayNotRead(t *testing.T) {
	for kind, about := range map[string][]string{
		"Lease":           {"manager", "node node-b", "release by node node-a"},
		"NodeVolumeState": {"node node-b", "release by node node-a"},
		"Node":            {"node node-b", "release by node node-a"},
	} {
		p := planMove(t, denied{newFakeReader(t, world(t)), kind})
		for _, about := range about {
			checkPlanned(t, p, relocate.Unknown, about, "cannot be read")
		}
	}
}

// The right may end after the plan was made.
func TestAnIntentIsDeletedOnlyIfWhatItsVolumeGoesToCanBeRead(t *testing.T) {
	intent := &volumesv1alpha1.VolumeAttachmentIntent{Spec: volumesv1alpha1.VolumeAttachmentIntentSpec{NodeName: "node-b"}}
	for kind, refused := range map[string]bool{"": false, "Lease": true, "NodeVolumeState": true} {
		m := &mover{gatherer: &facts.Gatherer{Reader: denied{newFakeReader(t, world(t)), kind}, System: "hawser-system",
			Now: time.Now}}
		for _, m.accept = range []bool{false, true} {
			if err := m.arrives(t.Context(), intent); (err != nil) != (refused && !m.accept) {
				t.Errorf("without the right to read %q, accepted: %t: error %v", kind, m.accept, err)
			}
		}
	}
}

func TestAPlanOfADrainDoesNotCallFreeWhatItMayNotRead(t *testing.T) {
	f := world(t, append(slices.Clone(onA), claimEnds[2:]...)...)
	for _, kind := range []string{"VolumeAttachmentIntent", "PersistentVolume", "PersistentVolumeClaim", "Lease"} {
		text, findings := drainPlan(t, denied{newFakeReader(t, f), kind})
		for _, want := range []string{"of 1 it is not known", "Unknown", "cannot be read"} {
			if findings != 1 || !strings.Contains(text, want) {
				t.Errorf("without the right to read %s: %d findings, want 1; the plan has no %q:\n%s", kind, findings, want, text)
			}
		}
	}
}

func TestAPlanWithoutTheRightToReadTheLocksDoesNotCallTheVolumeFree(t *testing.T) {
	reader := newFakeReader(t, world(t, "{persistentVolumeName: pv-1}", "{persistentVolumeName: pv-2}"))
	for r, want := range map[facts.Reader]relocate.Check{
		reader:                      {Verdict: relocate.OK, Text: "no node holds the volume"},
		denied{reader, "ConfigMap"}: {Verdict: relocate.Unknown, Text: "the lock of the volume cannot be read"},
	} {
		g := &facts.Gatherer{Reader: r, System: "hawser-system", Now: time.Now}
		found, err := g.Move(t.Context(), facts.Ref{Kind: facts.KindClaim, Namespace: "shop", Name: "data"}, "node-b")
		if err != nil {
			t.Fatal(err)
		}
		p, err := relocate.Move(found, "", "")
		if err != nil {
			t.Fatal(err)
		}
		checkPlanned(t, p, want.Verdict, "holder", want.Text)
	}
}

func TestAPlanOfADrainFindsTheSame(t *testing.T) {
	for name, tt := range planCases {
		if tt.about == "holder" { // a drain reads the node, not each volume's other holders
			continue
		}
		t.Run(name, func(t *testing.T) {
			checkPlan(t, drainOf(t, "node-b", false, tt.changes...), tt.verdict, tt.about, tt.want)
		})
	}
}

// drainOf is the plan of a drain of node-a, in a situation.
func drainOf(t *testing.T, to string, drop bool, changes ...string) *relocate.Plan {
	t.Helper()
	g := &facts.Gatherer{Reader: newFakeReader(t, world(t, changes...)), System: "hawser-system", Now: time.Now}
	r, err := g.Drain(t.Context(), "node-a", to)
	if err != nil {
		t.Fatal(err)
	}
	p, err := relocate.Drain(r, drop)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// claimGone is a change of the fixture: the claim does not exist.
var claimGone = []string{"{namespace: shop, name: data, uid: claim-uid",
	"{namespace: shop, name: other, uid: claim-uid"}

func TestADrainMovesNoIntentWhoseClaimIsGone(t *testing.T) {
	checkPlanned(t, drainOf(t, "node-b", false, claimGone...), relocate.Refused, "claim shop/data",
		"no replacement gets volume pv-1")
}

// claimEnds are changes of the fixture: the claim is being deleted, and the data goes with it.
var claimEnds = []string{"name: data, uid: claim-uid, ", "name: data, uid: claim-uid, finalizers: " +
	"[volumes.hawser.io/intents], deletionTimestamp: \"2026-01-01T00:00:00Z\", ", reclaimRetain, reclaimDelete}

const (
	reclaimRetain = "  csi: {driver: disk.example.com, volumeHandle: handle-1}\n"
	reclaimDelete = reclaimRetain + "  persistentVolumeReclaimPolicy: Delete\n"
)

func TestADrainDeletesNoIntentWithWhichTheDataGoes(t *testing.T) {
	gone := append(slices.Clone(claimGone), reclaimRetain, reclaimDelete)
	for name, tt := range map[string]struct {
		to      string
		changes []string
		verdict relocate.Verdict
		about   string
		want    string
	}{
		"its claim is being deleted":        {"", claimEnds, relocate.Refused, "data", "claim shop/data is being"},
		"its claim is gone":                 {"", gone, relocate.Refused, "data", "claim shop/data is gone"},
		"the data is retained":              {"", claimEnds[:2], "", "", ""},
		"the claim stays":                   {"", claimEnds[2:], "", "", ""},
		"the manager refuses a replacement": {"node-b", claimEnds, relocate.Hangs, "claim shop/data", "being deleted"},
		"the intent is being deleted without a replacement": {"", append(slices.Clone(claimEnds), intentEnds...),
			relocate.Refused, "data", "claim shop/data is being"},
	} {
		t.Run(name, func(t *testing.T) {
			p := drainOf(t, tt.to, true, tt.changes...)
			checkPlan(t, p, tt.verdict, tt.about, tt.want)
			if tt.about != "data" {
				return
			}
			if run := checksOf(p)[len(p.Checks)].Run; len(run) != 1 || !strings.HasPrefix(run[0], "kubectl patch pv pv-1 ") {
				t.Errorf("the way to keep the data is %q, want a patch of pv-1", run)
			}
		})
	}
}

// intentEnds is a change of the fixture: the intent is being deleted.
var intentEnds = []string{"  uid: data-on-node-a-uid\n",
	"  uid: data-on-node-a-uid\n  deletionTimestamp: \"2026-01-01T00:00:00Z\"\n"}

// drainPlan is the report of plan drain node-a, and its findings.
func drainPlan(t *testing.T, reader facts.Reader) (string, int) {
	t.Helper()
	g := &facts.Gatherer{Reader: reader, System: "hawser-system", Now: time.Now}
	r, err := (&options{}).planDrain(t.Context(), g, []string{"node-a"})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	r.text(&b)
	return b.String(), r.findings
}

func TestAPlanOfADrainShowsWhichDataIsLost(t *testing.T) {
	text, findings := drainPlan(t, newFakeReader(t, world(t, append(slices.Clone(onA), claimEnds...)...)))
	for _, want := range []string{"1 would lose all data", "LosesData", "claim shop/data is being deleted",
		"kubectl patch pv pv-1 ", "kubectl delete vai data-on-node-a"} {
		if findings != 1 || !strings.Contains(text, want) {
			t.Errorf("%d findings, want 1; the plan has no %q:\n%s", findings, want, text)
		}
	}
}

func TestADrainWithoutATargetLeavesIntentsUnlessToldToDeleteThem(t *testing.T) {
	for _, drop := range []bool{false, true} {
		p := drainOf(t, "", drop)
		if movable := p.Intents[0].Movable(); movable != drop || p.Intents[0].Replacement != "" {
			t.Errorf("with --delete-intents=%t intent %s leaves: %t, replacement %q; want %t and none", drop,
				p.Intents[0].Intent, movable, p.Intents[0].Replacement, drop)
		}
	}
}
