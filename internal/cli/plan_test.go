/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package cli

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

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

func TestAPlanOfAMoveFindsWhatIsInTheWay(t *testing.T) {
	for name, tt := range planCases {
		t.Run(name, func(t *testing.T) {
			g := &facts.Gatherer{Reader: newFakeReader(t, world(t, tt.changes...)), System: "hawser-system", Now: time.Now}
			r, err := g.Move(t.Context(), facts.Ref{Kind: facts.KindClaim, Namespace: "shop", Name: "data"}, "node-b")
			if err != nil {
				t.Fatal(err)
			}
			p, err := relocate.Move(r, "", "")
			if err != nil {
				t.Fatal(err)
			}
			checkPlan(t, p, tt.verdict, tt.about, tt.want)
		})
	}
}

// lockless is an API server on which the user may not read ConfigMaps.
type lockless struct{ facts.Reader }

func (r lockless) Get(ctx context.Context, at client.ObjectKey, into client.Object, options ...client.GetOption) error {
	if _, ok := into.(*corev1.ConfigMap); ok {
		return apierrors.NewForbidden(corev1.Resource("configmaps"), at.Name, nil)
	}
	return r.Reader.Get(ctx, at, into, options...)
}

func TestAPlanWithoutTheRightToReadTheLocksDoesNotCallTheVolumeFree(t *testing.T) {
	reader := newFakeReader(t, world(t, "{persistentVolumeName: pv-1}", "{persistentVolumeName: pv-2}"))
	for r, want := range map[facts.Reader]relocate.Check{
		reader:           {Verdict: relocate.OK, Text: "no node holds the volume"},
		lockless{reader}: {Verdict: relocate.Unknown, Text: "the lock of the volume cannot be read"},
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
			g := &facts.Gatherer{Reader: newFakeReader(t, world(t, tt.changes...)), System: "hawser-system", Now: time.Now}
			r, err := g.Drain(t.Context(), "node-a", "node-b")
			if err != nil {
				t.Fatal(err)
			}
			p, err := relocate.Drain(r, false)
			if err != nil {
				t.Fatal(err)
			}
			checkPlan(t, p, tt.verdict, tt.about, tt.want)
		})
	}
}

func TestADrainWithoutATargetLeavesIntentsUnlessToldToDeleteThem(t *testing.T) {
	g := &facts.Gatherer{Reader: newFakeReader(t, world(t)), System: "hawser-system", Now: time.Now}
	r, err := g.Drain(t.Context(), "node-a", "")
	if err != nil {
		t.Fatal(err)
	}
	for _, drop := range []bool{false, true} {
		p, err := relocate.Drain(r, drop)
		if err != nil {
			t.Fatal(err)
		}
		if movable := p.Intents[0].Movable(); movable != drop || p.Intents[0].Replacement != "" {
			t.Errorf("with --delete-intents=%t intent %s leaves: %t, replacement %q; want %t and none", drop,
				p.Intents[0].Intent, movable, p.Intents[0].Replacement, drop)
		}
	}
}
