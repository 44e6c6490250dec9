/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package cli

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hawser-io/hawser/internal/explain/facts"
	"github.com/hawser-io/hawser/internal/survey"
)

// attachedOnA is the entry of the fixture's volume, which is mounted read-write on the node that it is attached to.
const attachedOnA = `spec:
  attachments:
  - volumeName: kubernetes.io/csi/disk.example.com^handle-1
    attachmentName: va-name
    attachmentUID: va-1
    state: Attached
    driver: disk.example.com
    volumeHandle: handle-1
    persistentVolumeName: pv-1
`

const mountedOnA = `  volumes:
  - volumeName: kubernetes.io/csi/disk.example.com^handle-1
    attachmentUID: va-1
    inUse: true
    publications: [{path: /p, type: Mount, intent: {namespace: shop, name: data-on-node-a, uid: u}}]
`

// forceAfter is added to policyOnA, a part of the fixture's intent.
const (
	policyOnA  = "  publisher: Agent\n"
	forceAfter = "  detachPolicy: {forceAfter: 6m}\n"
)

// hashOfFirst is the system UUID 11111111-2222-4333-8444-555555555555 as an agent reports it.
const hashOfFirst = "66749e1812728bdf"

const oneSource = `
apiVersion: volumes.hawser.io/v1alpha1
kind: VolumeManager
metadata: {name: cluster}
spec:
  fencing:
    sources: [{name: metal3, version: v1, resource: hosts, nodeName: "''", holds: "false", proves: PowerOff}]
status:
  conditions: [{type: FenceSourcesReady, status: "False", reason: FenceSourceForbidden, message: may not list hosts}]`

const wantedOnB = `
apiVersion: volumes.hawser.io/v1alpha1
kind: VolumeAttachmentIntent
metadata: {namespace: shop, name: data-on-node-b}
spec: {nodeName: node-b, volume: {persistentVolumeClaim: {claimName: data}}}
status: {volumeName: pv-1, uniqueVolumeName: "kubernetes.io/csi/disk.example.com^handle-1"}`

const waitingPod = `
apiVersion: v1
kind: Pod
metadata: {namespace: shop, name: waiting}
spec:
  containers: [{name: web, image: web}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
status: {phase: Pending}`

// onA is a change of the fixture: the volume is attached to node-a and mounted there.
var onA = []string{"metadata: {name: node-a}\nstatus:\n  agentVersion: v0.1.0\n",
	"metadata: {name: node-a}\n" + attachedOnA + "status:\n  agentVersion: v0.1.0\n" + mountedOnA}

// recognizedA are changes of the fixture: the machine that registers node-a is the one whose agent reports.
var recognizedA = []string{"metadata: {name: node-a, labels: {kubernetes.io/hostname: node-a, zone: east}}\nstatus:\n",
	"metadata: {name: node-a, labels: {kubernetes.io/hostname: node-a, zone: east}}\nstatus:\n" +
		"  nodeInfo: {systemUUID: 11111111-2222-4333-8444-555555555555}\n",
	mountedOnA, mountedOnA + "  machine: {systemUUID: " + hashOfFirst + "}\n"}

// ofPod are changes of the fixture: the intent is a pod's.
var ofPod = append(slices.Clone(recognizedA), "  uid: data-on-node-a-uid\n",
	"  uid: data-on-node-a-uid\n  labels: {volumes.hawser.io/pod-uid: p}\n")

func TestAPlanOfAFenceShowsWhatHappensToEachVolume(t *testing.T) {
	for name, tt := range map[string]struct {
		changes []string
		want    []string
		not     []string
		staying int
	}{
		"an intent wants it": {nil, []string{"NeedsDelete", "shop/data-on-node-a",
			"kubectl delete vai data-on-node-a -n shop", "mounted read-write", "OutOfServiceTaint",
			"No fence source is configured", "not known to be silent", "power the machine off first",
			"nothing is known to cut the access"}, []string{"Fenced"}, 0},
		"an intent with a policy wants it": {[]string{policyOnA, policyOnA + forceAfter}, []string{"NeedsDelete",
			"detachPolicy.forceAfter detaches 1 volume by time alone, also from a machine that runs",
			"Deleting them forces the detach after 6m0s by time alone, also from a machine that still runs",
			"OutOfServiceTaint or ForcedAfterTimeout", "run\tonly if the machine is off, because time alone forces the detach " +
				"then:\n\t  \tkubectl delete vai data-on-node-a -n shop\n"}, nil, 0},
		"an intent without a policy wants it": {nil, []string{"run\tkubectl delete vai data-on-node-a -n shop"},
			[]string{"ForcedAfterTimeout", "by time alone", "only if the machine is off"}, 0},
		"a pod's intent with a policy wants it": {append(slices.Clone(ofPod), policyOnA, policyOnA+forceAfter), []string{
			"1 detached after their pods are deleted", "OutOfServiceTaint or ForcedAfterTimeout", "by time alone"},
			[]string{"kubectl delete vai"}, 0},
		"its intent is another volume's": {[]string{"  volumeName: pv-1\n  uniqueVolumeName: kubernetes.io/csi/disk.example",
			"  volumeName: pv-1\n  uniqueVolumeName: kubernetes.io/csi/other"}, []string{"Detaches", "no intent wants it"},
			nil, 0},
		"a pod uses it, others wait": {[]string{"", podUsing("web"), "", wantedOnB, "", waitingPod}, []string{
			"used by", "shop/web", "intent shop/data-on-node-b on node node-b", "pod shop/waiting, which has no node yet"},
			nil, 0},
		"a source, and no machine": {[]string{"", oneSource}, []string{"Fence sources: metal3. Not all can be used",
			"may not list hosts", "No fence counts: the machine cannot be recognized"}, []string{"Fenced"}, 0},
		"the driver cuts the access": {[]string{"metadata: {name: disk.example.com}",
			"metadata: {name: disk.example.com, annotations: {volumes.hawser.io/unpublish-cuts-access: \"true\"}}"}, nil,
			[]string{"nothing is known to cut"}, 0},
		"another controller attached it": {[]string{attachedOnA, ""}, []string{"1 detached by Kubernetes on the taint",
			"DetachesByKubernetes", "also from a machine that runs"}, []string{"Stays", "would stay"}, 0},
		"the kubelet attached it after the agent died": {[]string{attachedOnA, "", mountedOnA, ""}, []string{
			"1 volume on node node-a", "DetachesByKubernetes", "pv-1 (claim shop/data)", "not known",
			"nothing is known to cut the access"}, []string{"nothing: the volume"}, 0},
		"Hawser is about to attach it": {[]string{attachedOnA, "", mountedOnA, "", "status: {attached: true}",
			"status: {attached: false}"}, []string{"0 volumes on node node-a"}, nil, 0},
		"pods have to go first, and a fence deletes none": {append(slices.Clone(ofPod), "", oneSource),
			[]string{"1 detached after their pods are deleted", "A fence alone deletes no pod"},
			[]string{"or Fenced"}, 0},
		"pods have to go first, and a fence has the taint set": {append(slices.Clone(ofPod), "",
			strings.ReplaceAll(oneSource, "fencing:", "fencing:\n    manageOutOfServiceTaint: true")),
			[]string{"1 detached after their pods are deleted", "OutOfServiceTaint or Fenced"}, nil, 0},
		"the data goes with its claim": {claimEnds, []string{"1 would lose all data", "all: claim shop/data is being deleted",
			"kubectl patch pv pv-1 "}, []string{"mounted read-write"}, 0},
		"another machine uses it": {[]string{"    inUse: true\n", "    inUse: true\n    machine: {systemUUID: other}\n"},
			[]string{"Stays", "another machine"}, nil, 1},
		"the agent is silent": {[]string{"holderIdentity: node-a, leaseDurationSeconds: 40",
			"holderIdentity: node-a, leaseDurationSeconds: -60"}, []string{"The agent is silent"},
			[]string{"power the machine off first"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := fencePlan(t, tt.changes...)
			var b bytes.Buffer
			(&options{}).writeFencePlan(&b, &f)
			for _, want := range tt.want {
				if !strings.Contains(b.String(), want) {
					t.Errorf("the plan has no %q:\n%s", want, &b)
				}
			}
			for _, not := range tt.not {
				if strings.Contains(b.String(), not) {
					t.Errorf("the plan has %q:\n%s", not, &b)
				}
			}
			if f.Staying() != tt.staying {
				t.Errorf("%d volumes stay, want %d:\n%s", f.Staying(), tt.staying, &b)
			}
		})
	}
}

func TestAPlanOfAFenceDoesNotTakeForAbsentWhatItMayNotRead(t *testing.T) {
	f := world(t, append(slices.Clone(onA), "", oneSource, reclaimRetain, reclaimDelete)...)
	for kind, tt := range map[string]struct{ want, not string }{
		"VolumeManager":          {"Fence sources are not known", "No fence source"},
		"Lease":                  {"Whether the agent is silent is not known", "has no Lease"},
		"VolumeAttachmentIntent": {"Not read: intents on the node", ""},
		"PersistentVolume":       {"Not read: PersistentVolumes", ""},
		"PersistentVolumeClaim":  {"Not read: PersistentVolumeClaim shop/data cannot be read", ""},
		"VolumeAttachment":       {"Not read: VolumeAttachments", ""},
	} {
		g := &facts.Gatherer{Reader: denied{newFakeReader(t, f), kind}, System: "hawser-system", Now: time.Now}
		r, err := (&options{}).planFence(t.Context(), g, []string{"node-a"})
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		r.text(&b)
		if text := b.String(); r.findings == 0 || !strings.Contains(text, tt.want) || !strings.Contains(text, "Not read: ") ||
			tt.not != "" && strings.Contains(text, tt.not) {
			t.Errorf("without the right to read %s: %d findings, want some, %q, and not %q:\n%s", kind, r.findings, tt.want,
				tt.not, text)
		}
	}
}

func podUsing(name string) string {
	return strings.ReplaceAll(strings.ReplaceAll(waitingPod, "name: waiting", "name: "+name),
		"spec:\n", "spec:\n  nodeName: node-a\n")
}

func fencePlan(t *testing.T, changes ...string) survey.Fence {
	t.Helper()
	g := &facts.Gatherer{Reader: newFakeReader(t, world(t, append(onA, changes...)...)), System: "hawser-system",
		Now: time.Now}
	r, err := g.Fence(t.Context(), "node-a")
	if err != nil {
		t.Fatal(err)
	}
	return survey.PlanFence(r)
}

func TestAFenceCountsInAPlanOnlyIfTheMachineIsRecognized(t *testing.T) {
	f := fencePlan(t, append(slices.Clone(recognizedA), "", oneSource)...)
	if got := f.Volumes[0].On; f.Unrecognized != "" || len(got) != 2 {
		t.Errorf("volumes are detached on %v (%q), want the taint and a fence", got, f.Unrecognized)
	}
}
