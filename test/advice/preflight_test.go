/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package advice

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/explain/catalog"
	"github.com/hawser-io/hawser/internal/install"
	"github.com/hawser-io/hawser/test/apiserver"
	"github.com/hawser-io/hawser/test/system"
)

// TestBeforeAnInstallation takes one cluster from nothing to the first VolumeManager. It is an API server of its own
// with no program but those that a step starts: the tests play what kubelets and the pods of the control plane show.
func TestBeforeAnInstallation(t *testing.T) {
	t.Parallel()
	own, policies := bare(t)
	for _, step := range slices.Concat(equipping, refusals(policies), firstSpec) {
		if !t.Run(step.name, func(t *testing.T) {
			s := newStory(t)
			s.sys = own
			step.play(s)
		}) {
			return
		}
	}
}

// bare starts the API server, and returns the directory of which it reads admission policies.
func bare(t *testing.T) (own *system.System, policies string) {
	t.Helper()
	policies, config := t.TempDir(), filepath.Join(t.TempDir(), "admission.yaml")
	text := `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: ValidatingAdmissionPolicy
  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: ValidatingAdmissionPolicyConfiguration,
    staticManifestsDir: ` + policies + "}\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	access, client := apiserver.StartBare(t, map[string]string{"admission-control-config-file": config})
	file := apiserver.Kubeconfig(t, access)
	own = system.Open(system.Options{Dir: filepath.Dir(file), Out: os.Stdout})
	own.Client = client
	t.Cleanup(func() {
		if err := own.Down(context.Background()); err != nil {
			t.Error(err)
		}
	})
	for _, err := range []error{os.Rename(file, own.Kubeconfig()), os.Mkdir(filepath.Join(own.Dir, "logs"), 0o700),
		os.Mkdir(filepath.Join(own.Dir, "run"), 0o700)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return own, policies
}

// beforehand asks whether Hawser can be installed.
func beforehand(*story) question { return installation(install.Namespace()) }

// equipping are the steps of a cluster that gets nodes, a driver and a control plane that shows its flags.
var equipping = []step{
	{"no node", situation{code: "HWS962", way: "Add a node with Linux", comes: beforehand,
		act: func(s *story) {
			s.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeA,
				Labels: map[string]string{corev1.LabelOSStable: "linux"}}})
		}}},
	{"a kubelet that attaches itself", situation{code: "HWS957", way: "Set enableControllerAttachDetach: true",
		comes: func(s *story) question { s.controllerManager("*"); return installation(install.Namespace()) },
		act: func(s *story) { // as the kubelet then does
			s.bash("kubectl annotate node " + nodeA + " volumes.kubernetes.io/controller-managed-attach-detach=true")
		}}},
	{"no attach detach controller", situation{code: "HWS956", way: "Turn the controller on",
		comes: func(s *story) question {
			s.controllerManager("*,-persistentvolume-attach-detach-controller")
			return installation(install.Namespace())
		},
		act: func(s *story) { s.controllerManager("*") }}},
	{"no driver", situation{code: "HWS961", way: "Install the driver of your storage", comes: beforehand,
		act: func(s *story) {
			s.create(&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: system.DriverName}})
		},
		ends: func(s *story) { // the next step begins with what is still missing
			q := installation(install.Namespace())
			s.ask(q, "no HWS961", func(r answer) bool { return !r.has(q, "HWS961") })
		}}},
	{"a driver without an attacher", situation{code: "HWS960", way: "with external-attacher in it", comes: beforehand,
		act: func(s *story) {
			s.must(s.sys.StartControllerDriver(s.limited()))
			s.must(s.sys.Run(s.limited(), system.Attacher, filepath.Join(apiserver.Root(), ".cache", "bin", system.Attacher),
				"--csi-address="+s.sys.ControllerSocket(), "--kubeconfig="+s.sys.Kubeconfig(), "--leader-election",
				"--leader-election-namespace=default"))
		}}},
}

// refusals are the steps in which an API server refuses something, or does not serve it.
func refusals(policies string) []step {
	return []step{
		{"a group whose server is gone", situation{code: "HWS945", way: "delete their APIService objects",
			comes: func(s *story) question {
				s.bash(`kubectl apply -f - <<<'{"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
"metadata": {"name": "v1.gone.example.com"}, "spec": {"group": "gone.example.com", "version": "v1",
"groupPriorityMinimum": 100, "versionPriority": 100, "insecureSkipTLSVerify": true,
"service": {"namespace": "default", "name": "gone"}}}'`)
				return installation(install.Namespace())
			},
			act: func(s *story) { s.bash("kubectl delete apiservice v1.gone.example.com") }}},
		{"an API server without policies", situation{code: "HWS947", way: "out of --disable-admission-plugins",
			comes: func(s *story) question {
				s.controlPlane("kube-apiserver", "--disable-admission-plugins=ValidatingAdmissionPolicy")
				return installation(install.Namespace())
			},
			act: func(s *story) { s.controlPlane("kube-apiserver") }}},
		{"a policy that refuses policies", situation{code: "HWS946", way: "Exempt Hawser's policies",
			comes: func(s *story) question {
				s.other = filepath.Join(policies, "policies.yaml")
				s.must(os.WriteFile(s.other, []byte(noPolicies), 0o600))
				return installation(install.Namespace())
			},
			act: func(s *story) { s.must(os.Remove(s.other)) }}},
		{"a webhook that refuses namespaces", situation{code: "HWS950", way: "Exempt Hawser's namespace there",
			comes: func(s *story) question {
				s.create(unserved(admissionv1.Create, "", "namespaces"))
				return installation(install.Namespace())
			},
			act: func(s *story) {
				s.bash(`kubectl patch validatingwebhookconfiguration unserved --type=json -p '[{"op": "add",
"path": "/webhooks/0/namespaceSelector", "value": {"matchExpressions": [{"key": "kubernetes.io/metadata.name",
"operator": "NotIn", "values": ["` + install.Namespace() + `"]}]}}]'`)
			}}},
		{"a user who may not grant", situation{code: "HWS952", way: "Let a cluster administrator install Hawser",
			comes: func(s *story) question {
				s.bash(`kubectl create clusterrole installer --verb=get,list,create --resource=namespaces,nodes,` +
					`customresourcedefinitions,serviceaccounts,resourcequotas,deployments.apps,daemonsets.apps,` +
					`clusterroles,clusterrolebindings,roles,rolebindings`)
				s.bash("kubectl create clusterrolebinding installer --clusterrole=installer --user=installer")
				s.bash(grants)
				return installation(install.Namespace(), "--as=installer")
			},
			act: func(s *story) {
				s.bash("kubectl create clusterrolebinding admin --clusterrole=cluster-admin --user=installer")
				s.bash("! {\n" + grants + "\n}")
			}}},
	}
}

// grants is the dry run that is printed, by the user. It succeeds if the user has not the rights to install.
var grants = "cd " + filepath.Join(apiserver.Root(), "config", "default") + " && " + strings.Replace(
	catalog.OfReason(catalog.RightsUncertain).Run[0], "kubectl apply", "kubectl apply --as=installer", 1)

// noPolicies is a policy of a file. The API server holds none of its objects against policies.
const noPolicies = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: none.static.k8s.io}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [admissionregistration.k8s.io], apiVersions: ["*"],
    operations: [CREATE], resources: [validatingadmissionpolicies]}]}
  validations: [{expression: "false", message: "ask the platform team"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: none.static.k8s.io}
spec: {policyName: none.static.k8s.io, validationActions: [Deny]}
`

// otherRoot is the kubelet's directory of nodes that have another one, and otherPort a port of the agents there.
const (
	otherRoot = "/data/kubelet"
	otherPort = 9853
)

// firstSpec are the steps with what has to be in INITIAL_SPEC. The first one installs for all three.
var firstSpec = []step{
	{"a port of the API server", situation{code: "HWS953", way: "Set networkPolicy: None in INITIAL_SPEC",
		comes: func(s *story) question {
			s.daemonSet("exporter", func(p *corev1.PodSpec) {
				p.HostNetwork, p.Containers[0].Ports = true, []corev1.ContainerPort{{ContainerPort: 9843}}
			})
			s.daemonSet("disk", func(p *corev1.PodSpec) {
				p.Volumes = []corev1.Volume{{Name: "registration", VolumeSource: corev1.VolumeSource{
					HostPath: &corev1.HostPathVolumeSource{Path: otherRoot + "/plugins_registry"}}}}
			})
			return installation(install.Namespace())
		},
		act: installs, ends: func(s *story) {
			s.agents()
			var all networkingv1.NetworkPolicyList
			if s.must(s.sys.Client.List(s.limited(), &all)); len(all.Items) > 0 {
				s.t.Errorf("there are %d network policies, want none", len(all.Items))
			}
		}}},
	{"a port of the agents that is taken", situation{code: "HWS954", way: "set agent.metricsPort", comes: beforehand,
		act: func(*story) {}, ends: func(s *story) {
			ports := s.agents().Containers[0].Ports
			if !slices.ContainsFunc(ports, func(p corev1.ContainerPort) bool { return p.ContainerPort == otherPort }) ||
				slices.ContainsFunc(ports, func(p corev1.ContainerPort) bool { return p.ContainerPort == 9843 }) {
				s.t.Errorf("the agents have the ports %v, want %d in place of the one that is taken", ports, otherPort)
			}
		}}},
	{"another kubelet directory", situation{code: "HWS955", way: "Set kubeletRoot in INITIAL_SPEC", comes: beforehand,
		act: func(*story) {}, ends: func(s *story) {
			if !slices.ContainsFunc(s.agents().Volumes, func(v corev1.Volume) bool {
				return v.HostPath != nil && v.HostPath.Path == otherRoot
			}) {
				s.t.Errorf("the agents mount %v, want %s", s.agents().Volumes, otherRoot)
			}
		}}},
}

// installs Hawser with the spec that the report asks for, and with what its warnings leave to the administrator.
func installs(s *story) {
	s.t.Helper()
	spec := s.ask(installation(install.Namespace()), "an initial spec", func(r answer) bool {
		return r.InitialSpec["networkPolicy"] != nil && r.InitialSpec["kubeletRoot"] != nil
	}).InitialSpec
	spec["agent"], spec["images"] = volumesv1alpha1.AgentWorkload{MetricsPort: otherPort}, images
	text, err := json.Marshal(spec)
	s.must(err)
	kinds(s)
	s.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: install.Namespace()}})
	s.must(s.sys.Run(s.limited(), operator, "/usr/bin/env", "INITIAL_SPEC="+string(text),
		filepath.Join(s.sys.Bin, "operator"), "--kubeconfig="+s.sys.Kubeconfig(), "--leader-elect=false",
		"--metrics-bind-address=0", "--health-probe-bind-address=0"))
}

// agents waits until the operator has created the DaemonSet of the agents, and returns what their pods are.
func (s *story) agents() *corev1.PodSpec {
	s.t.Helper()
	d := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: install.Namespace(), Name: "hawser-agent"}}
	return &await(s, &appsv1.DaemonSetList{}, d, func(d *appsv1.DaemonSet) bool { return d != nil }).Spec.Template.Spec
}

// daemonSet creates one that other software has.
func (s *story) daemonSet(name string, change func(*corev1.PodSpec)) {
	s.t.Helper()
	labels := map[string]string{"app": name}
	d := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: name, Image: "example.com/" + name}}}}}}
	change(&d.Spec.Template.Spec)
	s.create(d)
}

func (s *story) controllerManager(controllers string) {
	s.t.Helper()
	s.controlPlane("kube-controller-manager", "--controllers="+controllers)
}

// controlPlane shows a program of the control plane as the kubelet does that runs it: with the flags of its manifest.
func (s *story) controlPlane(program string, flags ...string) {
	s.t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: program + "-" + nodeA,
		Labels: map[string]string{"tier": "control-plane", "component": program}}, Spec: corev1.PodSpec{NodeName: nodeA,
		Containers: []corev1.Container{{Name: program, Image: "example.com/" + program,
			Command: append([]string{program}, flags...)}}}}
	s.remove(pod)
	s.create(pod)
}
