/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package config_test

import (
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/fencing"
	"github.com/hawser-io/hawser/test/apiserver"
)

// fenceState is an object of another program at one moment, and what its source makes of it.
type fenceState struct {
	name string
	// annotations, spec and status are YAML and are merged over those of the preset's object.
	annotations, spec, status string
	// deleted: the object is being deleted.
	deleted bool
	holds   bool
	// unnamed: the object names no Node, or no driver.
	unnamed bool
	// changed: the spec was another one before.
	changed string
}

// fencePreset is a directory of config/fencing with the states of its objects.
type fencePreset struct {
	directory, apiVersion, kind string
	annotations, spec           string
	// node or providerID that the source reads; or driver and addresses, and the kind in which drivers report.
	node, providerID string
	driver           string
	addresses        []netip.Prefix
	clients          string
	states           []fenceState
}

const (
	hostOn = `{operationalStatus: OK, poweredOn: true, errorCount: 0, errorMessage: "",
		provisioning: {ID: "1", state: provisioned}}`
	hostOff = `{operationalStatus: OK, poweredOn: false, errorCount: 0, errorMessage: "",
		provisioning: {ID: "1", state: provisioned}}`
	online = `{online: true}`

	fenceSucceeded   = `{result: Succeeded, message: fencing operation successful}`
	unfenceSucceeded = `{result: Succeeded, message: unfencing operation successful}`
)

// with changes a status.
func with(status, change string) string { return status + "\n---\n" + change }

func conditionOf(kind, status, reason string) string {
	return `{conditions: [{type: ` + kind + `, status: "` + status + `", reason: ` + reason +
		`, message: "", lastTransitionTime: "2026-01-01T00:00:00Z"}]}`
}

var fencePresets = []fencePreset{
	{
		directory: "fence-agents-remediation", apiVersion: "fence-agents-remediation.medik8s.io/v1alpha1",
		kind: "FenceAgentsRemediation", spec: `{agent: fence_ipmilan, sharedparameters: {"--action": reboot}}`,
		annotations: `{remediation.medik8s.io/node-name: node-a}`, node: "node-a",
		states: []fenceState{
			{name: "before its program has seen it"},
			{name: "the fence agent runs", status: conditionOf("FenceAgentActionSucceeded", "Unknown", "RemediationStarted")},
			{name: "only the remediation has begun", status: conditionOf("Processing", "True", "RemediationStarted")},
			{name: "the fence agent failed", status: conditionOf("FenceAgentActionSucceeded", "False", "FenceAgentFailed")},
			{name: "fenced", status: conditionOf("FenceAgentActionSucceeded", "True", "FenceAgentSucceeded"), holds: true},
			{name: "the health check gave up later",
				status: conditionOf("FenceAgentActionSucceeded", "False", "RemediationInterruptedByNHC")},
			{name: "the Node is healthy again", deleted: true,
				status: conditionOf("FenceAgentActionSucceeded", "True", "FenceAgentSucceeded")},
		},
	},
	{
		directory: "baremetalhost", apiVersion: "metal3.io/v1alpha1", kind: "BareMetalHost",
		spec: `{online: false, consumerRef: {apiVersion: infrastructure.cluster.x-k8s.io/v1beta2, kind: Metal3Machine,
			namespace: default, name: m3m-1}}`,
		providerID: "metal3://default/fenced/m3m-1",
		states: []fenceState{
			{name: "before its program has seen it"},
			{name: "on", spec: online, status: hostOn},
			{name: "to be powered off", status: hostOn},
			{name: "to be powered off by an annotation", spec: online, status: hostOn,
				annotations: `{reboot.metal3.io/metal3-remediation-1: '{"mode":"hard"}'}`},
			{name: "powered off", status: hostOff, holds: true},
			{name: "powered off, with a BMC that answers",
				status: with(hostOff, conditionOf("Manageable", "True", "Manageable")), holds: true},
			{name: "powered off by an annotation that keeps it off", spec: online, status: hostOff, holds: true,
				annotations: `{reboot.metal3.io/metal3-remediation-1: '{"mode":"hard"}'}`},
			{name: "powered off while it reboots", spec: online, status: hostOff,
				annotations: `{reboot.metal3.io: '{"mode":"hard"}'}`},
			{name: "about to be powered on", spec: online, status: hostOff},
			{name: "its BMC does not answer",
				status: with(hostOff, conditionOf("Manageable", "False", "PowerFailure"))},
			{name: "in error", status: with(hostOff, `{operationalStatus: error, errorType: power management error}`)},
			{name: "detached", status: with(hostOff, `{operationalStatus: detached}`)},
			{name: "to be detached", status: hostOff, annotations: `{baremetalhost.metal3.io/detached: ""}`},
			{name: "paused", status: hostOff, annotations: `{baremetalhost.metal3.io/paused: ""}`},
			{name: "its image is being erased", status: with(hostOff, `{provisioning: {ID: "1", state: deprovisioning}}`)},
			{name: "a host that only reboots", spec: `{disablePowerOff: true}`, status: hostOff},
			{name: "powered off, without a consumer", spec: `{consumerRef: null}`, status: hostOff, holds: true, unnamed: true},
			{name: "powered off, for another consumer", spec: `{consumerRef: {kind: Cluster}}`, status: hostOff, holds: true,
				unnamed: true},
		},
	},
	{
		directory: "cluster-api-machine", apiVersion: "cluster.x-k8s.io/v1beta2", kind: "Machine",
		spec: `{clusterName: c, providerID: "example://1", bootstrap: {dataSecretName: s},
			infrastructureRef: {apiGroup: infrastructure.example.com, kind: ExampleMachine, name: m}}`,
		providerID: "example://1",
		states: []fenceState{
			{name: "before its program has seen it"},
			{name: "not provisioned yet", spec: `{providerID: null}`, unnamed: true,
				status: conditionOf("InfrastructureReady", "False", "ObjectDoesNotExist")},
			{name: "running", status: with(`{initialization: {infrastructureProvisioned: true}}`,
				conditionOf("InfrastructureReady", "True", "Ready"))},
			{name: "to be deleted", deleted: true, status: with(`{initialization: {infrastructureProvisioned: true}}`,
				conditionOf("InfrastructureReady", "False", "Deleting"))},
			{name: "the infrastructure was deleted under a Machine that stays",
				status: with(`{initialization: {infrastructureProvisioned: true}}`,
					conditionOf("InfrastructureReady", "False", "ObjectDeleted"))},
			{name: "deleted before it was provisioned", deleted: true,
				status: conditionOf("InfrastructureReady", "False", "ObjectDoesNotExist")},
			{name: "gone", deleted: true, holds: true, status: with(`{initialization: {infrastructureProvisioned: true}}`,
				conditionOf("InfrastructureReady", "False", "ObjectDeleted"))},
		},
	},
	{
		directory: "network-fence", apiVersion: "csiaddons.openshift.io/v1alpha1", kind: "NetworkFence",
		clients: "csiaddonsnodes", driver: "rbd.csi.ceph.com",
		addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("2001:db8::/64")},
		spec: `{driver: rbd.csi.ceph.com, fenceState: Fenced, cidrs: [192.0.2.1/32, "2001:db8::/64"],
			secret: {name: s, namespace: default}, parameters: {clusterID: c}}`,
		states: []fenceState{
			{name: "a wish alone"},
			{name: "the request failed", status: `{result: Failed, message: cannot reach the cluster}`},
			{name: "fenced", status: fenceSucceeded, holds: true},
			{name: "to be unfenced, with the result of the fence", status: fenceSucceeded, spec: `{fenceState: Unfenced}`},
			{name: "unfenced", status: unfenceSucceeded, spec: `{fenceState: Unfenced}`},
			{name: "to be fenced again, with the result of the unfence", status: unfenceSucceeded,
				changed: `{fenceState: Unfenced}`},
			{name: "to be fenced again, with the result of the first fence", status: fenceSucceeded,
				changed: `{fenceState: Unfenced}`},
			{name: "with more addresses than the result was of", status: fenceSucceeded, changed: `{cidrs: [192.0.2.1/32]}`},
			{name: "a result without a message", status: `{result: Succeeded}`},
			{name: "being deleted", status: fenceSucceeded, deleted: true},
			{name: "with its driver in a class, which takes precedence", status: fenceSucceeded, holds: true, unnamed: true,
				spec: `{networkFenceClassName: class}`},
			{name: "with its driver in a class alone", status: fenceSucceeded, holds: true, unnamed: true,
				spec: `{networkFenceClassName: class, driver: null, secret: null}`},
		},
	},
	{
		directory: "cloud-shutdown", apiVersion: "v1", kind: "Node", node: "fenced",
		states: []fenceState{
			{name: "before its kubelet has reported"},
			{name: "ready", status: conditionOf("Ready", "True", "KubeletReady")},
			{name: "unreachable", status: conditionOf("Ready", "Unknown", "NodeStatusUnknown")},
			{name: "unreachable, with another taint", status: conditionOf("Ready", "Unknown", "NodeStatusUnknown"),
				spec: `{taints: [{key: node.kubernetes.io/unreachable, effect: NoExecute}]}`},
			{name: "shut down", status: conditionOf("Ready", "Unknown", "NodeStatusUnknown"), holds: true,
				spec: `{taints: [{key: node.cloudprovider.kubernetes.io/shutdown, effect: NoSchedule}]}`},
			{name: "ready again, with the taint still there: it is the agent that contradicts", holds: true,
				status: conditionOf("Ready", "True", "KubeletReady"),
				spec:   `{taints: [{key: node.cloudprovider.kubernetes.io/shutdown, effect: NoSchedule}]}`},
		},
	},
}

// TestThePresetsOfFenceSources applies each preset to an API server with the kinds of the other programs.
func TestThePresetsOfFenceSources(t *testing.T) {
	in := fencingCluster(t)
	tenant := in.tenant(t)
	for _, p := range fencePresets {
		t.Run(p.directory, func(t *testing.T) {
			p.expectNotForged(t, in, tenant)
			manager := in.client(t, apiserver.ServiceAccount(in.config, in.namespace, managerAccount))
			resource := p.resource(t, in)
			if had := p.directory == "cloud-shutdown"; p.mayRead(t, manager, resource) != had {
				t.Errorf("the manager may read %s before: %t, want %t", resource.Resource, !had, had)
			}
			in.kubectl(t, "apply", "--server-side", "--field-manager=hawser-fence-"+p.directory, "-k",
				filepath.Join("fencing", p.directory))
			if !p.mayRead(t, manager, resource) {
				t.Errorf("the manager may not get, list and watch %s", resource.Resource)
			}
			if of := (authorizationv1.ResourceAttributes{Group: resource.Group, Resource: p.clients}); p.clients != "" &&
				!p.mayRead(t, manager, of) {
				t.Errorf("the manager may not get, list and watch %s", of.Resource)
			}
			if p.may(t, manager, "update", resource) || p.may(t, manager, "delete", resource) {
				t.Errorf("the manager may change %s", resource.Resource)
			}
			source := in.sourceOf(t, p.directory)
			for _, s := range p.states {
				t.Run(s.name, func(t *testing.T) { p.expectVerdict(t, in, source, s) })
			}
		})
	}
	t.Run("what a driver reports of its nodes", in.testClients)
	t.Run("which volumes a NetworkFence covers", in.testCoveredVolumes)
	t.Run("the source on the page", in.testPage)
	t.Run("each preset leaves the rest of the VolumeManager", in.testPresetsLeaveTheRest)
}

// testClients has the API server store what the sidecars of csi-addons report.
func (in installation) testClients(t *testing.T) {
	source := in.sourceOf(t, "network-fence")
	for name, c := range map[string]struct {
		status string
		want   []netip.Prefix
		// unknown: what is there may be of an earlier connection.
		unknown bool
	}{
		"nothing yet":           {unknown: true},
		"nothing about clients": {status: `{state: Connected}`},
		"what it reported before csi-addons could not connect any more": {status: `{state: Retrying,
			networkFenceClientStatus: [{networkFenceClassName: a, ClientDetails: [{id: a, cidrs: [192.0.2.1/32]}]}]}`,
			unknown: true},
		"one": {status: `{state: Connected, networkFenceClientStatus: [{networkFenceClassName: a, ClientDetails: [
			{id: a, cidrs: [192.0.2.1/32]}]}]}`, want: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/32")}},
		"several of several classes": {status: `{state: Connected, networkFenceClientStatus: [
			{networkFenceClassName: a, ClientDetails: [{id: a, cidrs: [192.0.2.1/32, "2001:db8::1/128"]},
			{id: b, cidrs: [192.0.2.2/32]}]},
			{networkFenceClassName: b, ClientDetails: [{id: c, cidrs: [192.0.2.3/32]}]}]}`, want: []netip.Prefix{
			netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("2001:db8::1/128"),
			netip.MustParsePrefix("192.0.2.2/32"), netip.MustParsePrefix("192.0.2.3/32")}},
	} {
		t.Run(name, func(t *testing.T) {
			o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"driver": map[string]any{
				"name": "rbd.csi.ceph.com", "nodeID": "node-a", "endpoint": "pod://p.n:9070"}}}}
			o.SetAPIVersion("csiaddons.openshift.io/v1alpha1")
			o.SetKind("CSIAddonsNode")
			o.SetNamespace("default")
			o.SetName("node-a")
			expectAllowed(t, in.admin.Create(t.Context(), o))
			defer func() { expectAllowed(t, in.admin.Delete(t.Context(), o)) }()
			if c.status != "" {
				o.Object["status"] = merged(t, c.status)
				expectAllowed(t, in.admin.Status().Update(t.Context(), o))
			}
			got, err := source.Client(t.Context(), o)
			want := fencing.Client{NodeName: "node-a", Driver: "rbd.csi.ceph.com", Addresses: c.want}
			if (err != nil) != c.unknown || !reflect.DeepEqual(got, want) {
				t.Errorf("client %+v, error %v; want %+v, and an error: %t", got, err, want, c.unknown)
			}
		})
	}
}

// testCoveredVolumes: a driver may have several storage systems.
func (in installation) testCoveredVolumes(t *testing.T) {
	source := in.sourceOf(t, "network-fence")
	for name, c := range map[string]struct {
		parameters string
		attributes map[string]string
		want       bool
	}{
		"of the same storage": {`{parameters: {clusterID: c}}`,
			map[string]string{"clusterID": "c", "pool": "p"}, true},
		"of other storage":             {`{parameters: {clusterID: c}}`, map[string]string{"clusterID": "d"}, false},
		"of storage that is not known": {`{parameters: {clusterID: c}}`, nil, false},
		"that lack one of the parameters": {`{parameters: {clusterID: c, x: y}}`,
			map[string]string{"clusterID": "c"}, false},
		"where the fence names no storage": {`{}`, map[string]string{"clusterID": "c"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			o := &unstructured.Unstructured{Object: map[string]any{"spec": merged(t, c.parameters)}}
			got, err := source.CoversVolume(t.Context(), o, fencing.Volume{Attributes: c.attributes})
			if err != nil || got != c.want {
				t.Errorf("covered: %t, error %v; want %t", got, err, c.want)
			}
		})
	}
}

// watchdog is the source that docs/fencing.md describes and that is no preset.
var watchdog = fencePreset{
	directory: "self-node-remediation", apiVersion: "self-node-remediation.medik8s.io/v1alpha1",
	kind: "SelfNodeRemediation", node: "fenced",
	states: []fenceState{
		{name: "before its program has seen it"},
		{name: "waiting for the reboot",
			status: `{phase: Pre-Reboot-Completed, timeAssumedRebooted: "2026-01-01T00:00:00Z"}`},
		{name: "assumed rebooted", status: `{phase: Reboot-Completed}`, holds: true},
		{name: "its pods are deleted", status: `{phase: Fencing-Completed}`, holds: true},
		{name: "the Node is healthy again", status: `{phase: Reboot-Completed}`, deleted: true},
	},
}

// testPage applies the source of docs/fencing.md.
func (in installation) testPage(t *testing.T) {
	in.kubectlStdin(t, sourceOfPage(t), "apply", "--server-side", "--field-manager=of-the-page", "-f", "-")
	source := in.sourceOf(t, watchdog.directory)
	for _, s := range watchdog.states {
		t.Run(s.name, func(t *testing.T) { watchdog.expectVerdict(t, in, source, s) })
	}
	named := watchdog
	named.annotations, named.node = `{remediation.medik8s.io/node-name: node-a}`, "node-a"
	named.expectVerdict(t, in, source, fenceState{})
	for owners, want := range map[string]string{"Machine": "", "NodeHealthCheck": "fenced",
		"Machine NodeHealthCheck": "fenced"} {
		o := watchdog.object()
		var references []metav1.OwnerReference
		for _, kind := range strings.Fields(owners) {
			references = append(references, metav1.OwnerReference{APIVersion: "example.com/v1", Kind: kind, Name: "o", UID: "1"})
		}
		o.SetOwnerReferences(references)
		if got, err := source.Evaluate(t.Context(), o); err != nil || got.NodeName != want {
			t.Errorf("of a %s: verdict %+v, error %v; want Node %q", owners, got, err, want)
		}
	}
}

// sourceOfPage is the only VolumeManager on the page.
func sourceOfPage(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "docs", "fencing.md"))
	expectAllowed(t, err)
	var block strings.Builder
	for line := range strings.Lines(string(page)) {
		code, is := strings.CutPrefix(line, "    ")
		if is && (block.Len() > 0 || strings.HasPrefix(code, "apiVersion: ")) {
			block.WriteString(code)
		} else if block.Len() > 0 {
			break
		}
	}
	return block.String()
}

func TestEveryPresetOfFenceSourcesIsTested(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("fencing", "*", "volumemanager.yaml"))
	expectAllowed(t, err)
	var found, tested []string
	for _, file := range files {
		found = append(found, filepath.Base(filepath.Dir(file)))
	}
	for _, p := range fencePresets {
		tested = append(tested, p.directory)
	}
	slices.Sort(tested)
	if !slices.Equal(found, tested) {
		t.Errorf("config/fencing has %q, tests are of %q", found, tested)
	}
}

// fencingCluster has Hawser's roles, a VolumeManager and the kinds of the other programs.
func fencingCluster(t *testing.T) installation {
	t.Helper()
	config, admin := apiserver.Start(t)
	in := installation{config: config, admin: admin, kubeconfig: apiserver.Kubeconfig(t, config),
		namespace: volumesv1alpha1.InstallNamespace}
	in.kubectl(t, "apply", "-f", filepath.Join("testdata", "fencing"))
	in.kubectl(t, "wait", "--for=condition=Established", "-f", filepath.Join("testdata", "fencing"))
	in.kubectl(t, "apply", "-k", "namespace")
	in.kubectl(t, "apply", "-k", "rbac")
	in.kubectl(t, "apply", "--server-side", "-k", filepath.Join("volumemanager", "replace"))
	return in
}

func (in installation) client(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	c, err := client.New(config, client.Options{Scheme: in.admin.Scheme(), Mapper: in.admin.RESTMapper()})
	expectAllowed(t, err)
	return c
}

func (in installation) volumeManager(t *testing.T) *volumesv1alpha1.VolumeManager {
	t.Helper()
	vm := &volumesv1alpha1.VolumeManager{}
	expectAllowed(t, in.admin.Get(t.Context(), client.ObjectKey{Name: volumesv1alpha1.VolumeManagerName}, vm))
	return vm
}

// sourceOf compiles the source as the API server has it.
func (in installation) sourceOf(t *testing.T, name string) *fencing.Source {
	t.Helper()
	for _, spec := range in.volumeManager(t).Spec.Fencing.Sources {
		if spec.Name == name {
			source, err := fencing.Compile(spec)
			expectAllowed(t, err)
			return source
		}
	}
	t.Fatalf("the VolumeManager has no source %s", name)
	return nil
}

// testPresetsLeaveTheRest: each preset has its own field manager, so that none removes what another has applied.
func (in installation) testPresetsLeaveTheRest(t *testing.T) {
	spec := in.volumeManager(t).Spec
	want := len(fencePresets) + 1 // and that of the page
	if spec.AttachMode != volumesv1alpha1.AttachReplace || len(spec.Fencing.Sources) != want {
		t.Errorf("attach mode %s and %d sources, want Replace and %d", spec.AttachMode, len(spec.Fencing.Sources), want)
	}
}

func (p fencePreset) object() *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetAPIVersion(p.apiVersion)
	o.SetKind(p.kind)
	o.SetName("fenced")
	if p.kind != "Node" && p.kind != "NetworkFence" {
		o.SetNamespace("default")
	}
	return o
}

func (p fencePreset) resource(t *testing.T, in installation) authorizationv1.ResourceAttributes {
	t.Helper()
	kind := p.object().GroupVersionKind()
	mapping, err := in.admin.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
	expectAllowed(t, err)
	return authorizationv1.ResourceAttributes{Group: kind.Group, Resource: mapping.Resource.Resource}
}

// expectNotForged has a tenant, who edits a namespace, try to make a fence there, and to report addresses.
func (p fencePreset) expectNotForged(t *testing.T, in installation, tenant client.Client) {
	t.Helper()
	forged := p.object()
	forged.SetNamespace(tenantNamespace)
	expectForbidden(t, tenant.Create(t.Context(), forged), "cannot create resource")
	of := p.resource(t, in)
	for _, resource := range []string{of.Resource, p.clients} {
		for _, verb := range []string{"create", "update", "patch", "delete"} {
			for _, part := range []string{"", "status"} {
				asked := authorizationv1.ResourceAttributes{Namespace: tenantNamespace, Group: of.Group, Resource: resource,
					Subresource: part}
				if resource != "" && p.may(t, tenant, verb, asked) {
					t.Errorf("a tenant may %s %s %s, want that it cannot forge a fence", verb, resource, part)
				}
			}
		}
	}
}

func (p fencePreset) mayRead(t *testing.T, c client.Client, of authorizationv1.ResourceAttributes) bool {
	t.Helper()
	return p.may(t, c, "get", of) && p.may(t, c, "list", of) && p.may(t, c, "watch", of)
}

func (p fencePreset) may(t *testing.T, c client.Client, verb string, of authorizationv1.ResourceAttributes) bool {
	t.Helper()
	of.Verb = verb
	review := &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &of}}
	expectAllowed(t, c.Create(t.Context(), review))
	return review.Status.Allowed
}

// expectVerdict has the API server store the object in a state, and evaluates what it returns.
func (p fencePreset) expectVerdict(t *testing.T, in installation, source *fencing.Source, s fenceState) {
	t.Helper()
	o := p.object()
	o.SetFinalizers([]string{"example.com/of-its-program"})
	annotations := map[string]string{}
	for key, value := range merged(t, p.annotations, s.annotations) {
		annotations[key] = value.(string)
	}
	o.SetAnnotations(annotations)
	spec := merged(t, p.spec, s.spec)
	if first := merged(t, p.spec, s.spec, s.changed); len(first) > 0 {
		o.Object["spec"] = first
	}
	expectAllowed(t, in.admin.Create(t.Context(), o))
	defer func() {
		o.SetFinalizers(nil)
		expectAllowed(t, in.admin.Update(t.Context(), o))
		expectAllowed(t, client.IgnoreNotFound(in.admin.Delete(t.Context(), o)))
	}()
	if s.status != "" {
		o.Object["status"] = merged(t, strings.Split(s.status, "\n---\n")...)
		expectAllowed(t, in.admin.Status().Update(t.Context(), o))
	}
	if s.changed != "" {
		o.Object["spec"] = spec
		expectAllowed(t, in.admin.Update(t.Context(), o))
	}
	if s.deleted {
		expectAllowed(t, in.admin.Delete(t.Context(), o))
	}
	reader, err := dynamic.NewForConfig(in.config)
	expectAllowed(t, err)
	objects := reader.Resource(source.Resource()).Namespace(o.GetNamespace())
	o, err = objects.Get(t.Context(), o.GetName(), metav1.GetOptions{})
	expectAllowed(t, err)
	want := fencing.Verdict{NodeName: p.node, ProviderID: p.providerID, Driver: p.driver, Addresses: p.addresses,
		Holds: s.holds}
	if s.unnamed {
		want.NodeName, want.ProviderID, want.Driver = "", "", ""
	}
	got, err := source.Evaluate(t.Context(), o)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("verdict %+v, error %v; want %+v", got, err, want)
	}
}

// merged returns the fields of all texts. A later one replaces an earlier one, and null removes it.
func merged(t *testing.T, texts ...string) map[string]any {
	t.Helper()
	all := map[string]any{}
	for _, text := range texts {
		part := map[string]any{}
		expectAllowed(t, yaml.Unmarshal([]byte(strings.ReplaceAll(text, "\t", " ")), &part))
		maps.Copy(all, part)
	}
	maps.DeleteFunc(all, func(_ string, value any) bool { return value == nil })
	return all
}
