/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package preflight

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/hawser-io/hawser/internal/doctor"
	"github.com/hawser-io/hawser/internal/explain/catalog"
	"github.com/hawser-io/hawser/internal/explain/facts"
)

func TestASoundClusterHasNothingInTheWay(t *testing.T) {
	r := Examine(sound(t), noon)
	if got := codesOf(r); len(got) > 0 || len(r.LeftOut) > 0 || r.Count(OK) != len(checks) {
		t.Errorf("found %v, left out %+v, %d OK; want nothing, nothing, and all %d checks", got, r.LeftOut, r.Count(OK),
			len(checks))
	}
	if !strings.HasPrefix(r.Next, "kubectl apply -k .") || len(r.InitialSpec) > 0 {
		t.Errorf("next is %q with the spec %v, want the installation with defaults", r.Next, r.InitialSpec)
	}
}

// The real answers of admission plugins have the code of a missing right.
func forbidden(text string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "agent", errors.New(text))
}

const noRight = `User "dev" cannot create resource "pods" in API group "" in the namespace "hawser-system"`

// inNamespace makes Hawser's namespace exist, with the answer to the dry run of a pod.
func inNamespace(level string, answer error) func(*Facts) {
	return func(f *Facts) {
		f.Namespace = facts.Object[*corev1.Namespace]{Found: true, Value: &corev1.Namespace{}}
		if level != "" {
			f.Namespace.Value.Labels = map[string]string{enforce: level}
		}
		f.NamespaceTrial, f.PodTrial = nil, &Trial{Err: answer}
	}
}

// situation of a cluster in which one thing is found, and nothing else.
type situation struct {
	reason, name string
	change       func(*Facts)
	// want is part of what was seen.
	want string
}

var situations = []situation{
	{catalog.KubernetesTooOld, "1.34", func(f *Facts) { f.Version = "v1.34.9-gke.100" }, "v1.34.9-gke.100"},
	{catalog.KubernetesNotTested, "1.38", func(f *Facts) { f.Version = "v1.38.0" }, "supports 1.35 to 1.37"},
	{catalog.KindsNotServed, "no ValidatingAdmissionPolicy v1", func(f *Facts) {
		delete(f.Served, schema.FromAPIVersionAndKind(admission, "ValidatingAdmissionPolicy"))
	}, "admissionregistration.k8s.io/v1 ValidatingAdmissionPolicy"},
	{catalog.NoMutatingPolicies, "1.35", func(f *Facts) {
		f.Version = "v1.35.0"
		delete(f.Served, schema.FromAPIVersionAndKind(admission, "MutatingAdmissionPolicy"))
		delete(f.Served, schema.FromAPIVersionAndKind(admission, "MutatingAdmissionPolicyBinding"))
	}, "v1.35.0"},
	{catalog.GroupsUnavailable, "an aggregated API server is down", func(f *Facts) {
		f.Unavailable = []string{"v1beta1.metrics.k8s.io"}
	}, "v1beta1.metrics.k8s.io"},
	{catalog.PoliciesRefused, "a webhook refuses a policy", func(f *Facts) {
		f.PolicyTrials[2].Err = apierrors.NewInternalError(errors.New("failed calling webhook"))
	}, "1 of "},
	{catalog.PoliciesDisabled, "the plugin is off", func(f *Facts) {
		f.ControlPlane.Items[1] = static("kube-apiserver", "--disable-admission-plugins",
			"DefaultStorageClass,ValidatingAdmissionPolicy")
	}, "ValidatingAdmissionPolicy"},
	{catalog.PrivilegedRefused, "a policy engine refuses", inNamespace("privileged",
		forbidden(`admission webhook "pods.example.com" denied the request`)), "pods.example.com"},
	{catalog.NamespaceRestricted, "Pod Security refuses", inNamespace("baseline",
		forbidden(`violates PodSecurity "baseline:latest": privileged`)), "violates PodSecurity"},
	{catalog.NamespaceRestricted, "no right to try, and a label that refuses", inNamespace("restricted",
		forbidden(noRight)), enforce + "=restricted"},
	{catalog.NamespaceRestricted, "no right to try, and no label", inNamespace("", forbidden(noRight)), "no label"},
	{catalog.NamespaceRefused, "a policy refuses the namespace", func(f *Facts) {
		f.NamespaceTrial.Err = forbidden("namespaces are made by the platform team")
	}, "platform team"},
	{catalog.RightsMissing, "an editor of one namespace", func(f *Facts) {
		f.Rights[1].Allowed = false
	}, "create customresourcedefinitions"},
	{catalog.RightsUncertain, "no escalate", func(f *Facts) { f.Rights[9].Allowed = false }, "escalate clusterroles"},
	{catalog.APIServerPort, "another port", func(f *Facts) {
		f.Endpoints.Items[0].Ports = append(f.Endpoints.Items[0].Ports, discoveryv1.EndpointPort{Port: ptr.To(int32(9345))})
	}, "it listens on 9345; allowed: 443, 6443, 8443, 16443"},
	{catalog.HostPortTaken, "an exporter on the host", func(f *Facts) {
		d := plugin("/elsewhere")
		d.Name, d.Spec.Template.Spec.HostNetwork = "exporter", true
		d.Spec.Template.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{{ContainerPort: 9843}}}}
		f.DaemonSets.Items = append(f.DaemonSets.Items, d)
	}, "port 9843 (metrics) by DaemonSet storage/exporter"},
	{catalog.HostPortTaken, "a host port", func(f *Facts) {
		d := &appsv1.Deployment{}
		d.Spec.Template.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{{ContainerPort: 80,
			HostPort: 9844}}}}
		f.Deployments.Items = []*appsv1.Deployment{d}
	}, "port 9844 (health)"},
	{catalog.KubeletDirectory, "another directory", func(f *Facts) {
		f.DaemonSets.Items[0] = plugin("/data/kubelet/plugins_registry")
	}, "/data/kubelet"},
	{catalog.KubeletDirectory, "two directories", func(f *Facts) {
		f.DaemonSets.Items = append(f.DaemonSets.Items, plugin("/data/kubelet/plugins_registry"))
	}, "/data/kubelet, /var/lib/kubelet"},
	{catalog.AttachDetachOff, "one of two controller managers", func(f *Facts) {
		f.ControlPlane.Items = append(f.ControlPlane.Items,
			static("/usr/local/bin/kube-controller-manager", "--controllers=*,-"+attachDetachController))
	}, "in 1 of 2 pods"},
	{catalog.KubeletAttaches, "enableControllerAttachDetach: false", func(f *Facts) {
		delete(f.Nodes.Items[1].Annotations, managedAttach)
	}, "node-b"},
	{catalog.SELinuxLimits, "a labelling driver on Fedora", func(f *Facts) {
		f.Drivers.Items[0].Spec.SELinuxMount = ptr.To(true)
		f.Nodes.Items[0].Status.NodeInfo.OSImage = "Fedora CoreOS 42"
	}, disk + "; OS images: Fedora CoreOS 42"},
	{catalog.DriverLimits, "a driver that needs tokens", func(f *Facts) {
		f.Drivers.Items[0].Spec.TokenRequests = []storagev1.TokenRequest{{}}
		f.Drivers.Items[0].Spec.RequiresRepublish = ptr.To(true)
	}, "tokenRequests), repeated publishing"},
	{catalog.AttacherNotSeen, "no attacher", func(f *Facts) {
		f.Attachments.Items[0].Attached = false
		f.Attachers.Items[0] = lease("external-attacher-leader-disk-example-com", noon.Add(-time.Hour))
	}, "no Lease"},
	{catalog.NoDrivers, "no driver", func(f *Facts) {
		f.Drivers.Items, f.CSINodes.Items, f.Attachments.Items = nil, nil, nil
		f.Volumes.Items[0] = volumeOf(corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{}})
	}, "1 PersistentVolumes"},
	{catalog.AgentsOnNoNode, "Windows and Fargate", func(f *Facts) {
		f.Nodes.Items[0].Labels[corev1.LabelOSStable] = "windows"
		f.Nodes.Items[1].Labels["eks.amazonaws.com/compute-type"] = "fargate"
	}, "2 nodes"},
}

func TestEachSituationHasItsFindingAndNoOther(t *testing.T) {
	for _, s := range situations {
		t.Run(s.reason+"/"+s.name, func(t *testing.T) {
			f := sound(t)
			s.change(f)
			r := Examine(f, noon)
			if got := codesOf(r); !slices.Equal(got, []string{s.reason}) {
				t.Fatalf("found %v, want %s alone", got, s.reason)
			}
			c, e := r.Checks[0], catalog.OfReason(s.reason)
			if !strings.Contains(c.Detail, s.want) || (c.Status == Blocked) != (e.Level == catalog.Problem) {
				t.Errorf("%s %s: %s, want %q", c.Status, c.Code, c.Detail, s.want)
			}
			if again := strings.HasPrefix(r.Next, "kubectl hawser preflight"); again != (c.Status == Blocked) {
				t.Errorf("after %s the next command is %q, want the installation unless it is blocked", c.Status, r.Next)
			}
			for _, run := range c.Run {
				if strings.Contains(run, "{system}") || strings.Contains(run, "{node}") {
					t.Errorf("the command %q names no object", run)
				}
			}
		})
	}
}

func TestEveryCodeOfPreflightHasASituation(t *testing.T) {
	for _, e := range catalog.All() {
		if e.Code > "HWS940" && !slices.ContainsFunc(situations, func(s situation) bool { return s.reason == e.Reason }) {
			t.Errorf("%s %s has no situation", e.Code, e.Reason)
		}
	}
}

func TestWhatCannotBeReadIsLeftOutAndNeverOK(t *testing.T) {
	denied := apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no"))
	for kind, tt := range map[string]struct {
		change func(*Facts)
		checks []string
	}{
		KindVersion:   {func(f *Facts) { f.Errs[KindVersion] = denied }, []string{"Kubernetes version"}},
		KindDiscovery: {func(f *Facts) { f.Errs[KindDiscovery] = denied }, []string{"API kinds", "admission policies"}},
		KindRights:    {func(f *Facts) { f.Rights[0].Err = denied }, []string{"your rights"}},
		KindNamespace: {func(f *Facts) { f.Namespace.Err = denied }, []string{"privileged pods"}},
		KindSpaceTrial: {func(f *Facts) {
			f.NamespaceTrial.Err = forbidden(`User "dev" cannot create resource "namespaces"`)
		}, []string{"privileged pods"}},
		KindPolicyTrial: {func(f *Facts) { f.PolicyTrials[0].Err = forbidden(`cannot create resource "x"`) },
			[]string{"admission policies"}},
		KindEndpoints: {func(f *Facts) { f.Endpoints.Err = denied }, []string{"port of the API server"}},
		facts.KindNode: {func(f *Facts) { f.Nodes.Err, f.Nodes.Items = denied, nil },
			[]string{"nodes", "kubelet directory", "attach/detach controller", "SELinux"}},
		facts.KindCSIDriver: {func(f *Facts) { f.Drivers.Err, f.Drivers.Items = denied, nil },
			[]string{"SELinux", "drivers"}},
		facts.KindCSINode: {func(f *Facts) { f.CSINodes.Err, f.CSINodes.Items = denied, nil }, []string{"drivers"}},
		KindDaemonSet: {func(f *Facts) { f.DaemonSets.Err, f.DaemonSets.Items = denied, nil },
			[]string{"ports of the nodes", "kubelet directory"}},
		KindControllers:   {func(f *Facts) { f.ControlPlane.Items = nil }, []string{"attach/detach controller"}},
		KindKubeletFolder: {func(f *Facts) { f.DaemonSets.Items = nil }, []string{"kubelet directory"}},
	} {
		t.Run(kind, func(t *testing.T) {
			f := sound(t)
			tt.change(f)
			r := Examine(f, noon)
			i := slices.IndexFunc(r.LeftOut, func(l doctor.LeftOut) bool { return l.Kind == kind })
			if i < 0 {
				t.Fatalf("left out is %+v, want %s", r.LeftOut, kind)
			}
			for _, name := range tt.checks {
				if c := named(r, name); c != nil || !slices.Contains(r.LeftOut[i].Findings, name) {
					t.Errorf("check %s is %+v, left out for %s are %v; want it left out", name, c, kind, r.LeftOut[i].Findings)
				}
			}
		})
	}
}

func TestATrialThatIsNotAnsweredRefusesNothing(t *testing.T) {
	for name, err := range map[string]error{
		"the time is over":             fmt.Errorf("client rate limiter: %w", os.ErrDeadlineExceeded),
		"a webhook without dry runs":   apierrors.NewBadRequest(`admission webhook "x" does not support dry run`),
		"too many requests":            apierrors.NewTooManyRequests("later", 1),
		"the user has no right to try": forbidden(noRight),
	} {
		f := sound(t)
		f.PolicyTrials[0].Err = err
		if r := Examine(f, noon); len(codesOf(r)) > 0 || len(r.LeftOut) != 1 || named(r, "admission policies") != nil {
			t.Errorf("%s: found %v, left out %+v; want the check left out", name, codesOf(r), r.LeftOut)
		}
	}
	f := sound(t)
	f.PolicyTrials[0].Err = apierrors.NewAlreadyExists(schema.GroupResource{}, "hawser-hold")
	if c := named(Examine(f, noon), "admission policies"); c == nil || c.Status != OK {
		t.Errorf("a policy that exists: %+v, want OK", c)
	}
}

func TestTheNamespacesLabelDecidesWhereNoPodCanBeTried(t *testing.T) {
	for name, err := range map[string]error{"no right": forbidden(noRight),
		"no account yet": forbidden(`error looking up service account hawser-system/default: serviceaccount not found`)} {
		f := sound(t)
		inNamespace("privileged", err)(f)
		if c := named(Examine(f, noon), "privileged pods"); c == nil || c.Status != OK ||
			!strings.Contains(c.Text, "no pod could be tried") {
			t.Errorf("%s: %+v, want OK by the label, and that no pod was tried", name, c)
		}
	}
}

func TestAnInstallationThatIsThereLeadsToDoctor(t *testing.T) {
	f := sound(t)
	f.Installed, f.InstalledVersion = true, "v0.1.0"
	if r := Examine(f, noon); r.Next != "kubectl hawser doctor" || r.InstalledVersion != "v0.1.0" {
		t.Errorf("next is %q, version %q; want doctor and v0.1.0", r.Next, r.InstalledVersion)
	}
}

// Hawser's own agents use the ports that are theirs.
func TestHawsersOwnWorkloadsTakeNoPort(t *testing.T) {
	f := sound(t)
	d := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: f.System, Name: "hawser-agent",
		Labels: map[string]string{"app.kubernetes.io/name": "hawser"}}}
	d.Spec.Template = f.Release.Agent
	f.DaemonSets.Items = append(f.DaemonSets.Items, d)
	if got := codesOf(Examine(f, noon)); len(got) > 0 {
		t.Errorf("found %v, want nothing", got)
	}
}

func TestWarningsThatTheFirstSpecEndsAreInTheReport(t *testing.T) {
	f := sound(t)
	f.Endpoints.Items[0].Ports[0].Port = ptr.To(int32(7443))
	f.DaemonSets.Items[0] = plugin("/data/kubelet/plugins_registry")
	r := Examine(f, noon)
	if r.InitialSpec["networkPolicy"] != "None" || r.InitialSpec["kubeletRoot"] != "/data/kubelet" {
		t.Errorf("initial spec %v, want networkPolicy None and kubeletRoot /data/kubelet", r.InitialSpec)
	}
}

func TestDriversWithWhatHawserGives(t *testing.T) {
	f := sound(t)
	share := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "share.example.com"}}
	share.Spec.AttachRequired = ptr.To(false)
	secrets := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "secrets.example.com"}}
	secrets.Spec.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral}
	secrets.Spec.PodInfoOnMount = ptr.To(true)
	own := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "volumes.hawser.io"}}
	f.Drivers.Items = append(f.Drivers.Items, share, secrets, own)
	f.Volumes.Items = append(f.Volumes.Items, volumeOf(corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{}}),
		volumeOf(corev1.PersistentVolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{
			VolumeID: "vol-1"}}))
	f.Attachments.Items = append(f.Attachments.Items, facts.Attachment{Driver: "ebs.csi.aws.com", Attached: true})
	r := Examine(f, noon)
	want := map[string]string{disk: "1 1 attach, mount", "ebs.csi.aws.com": "1 1 attach, mount",
		"share.example.com": "0 0 mount, inline volumes; it needs no attach", "secrets.example.com": "0 0 nothing"}
	for i := range r.Drivers {
		d := &r.Drivers[i]
		got := fmt.Sprint(d.Volumes, " ", d.Attached, " ", d.Gives)
		if want[d.Name] == "" || !strings.HasPrefix(got, want[d.Name]) {
			t.Errorf("driver %s: %s, want %q", d.Name, got, want[d.Name])
		}
		delete(want, d.Name)
	}
	if len(want) > 0 || len(r.Others) != 1 || r.Others[0] != (Source{"nfs", 1}) || len(codesOf(r)) > 0 {
		t.Errorf("missing drivers %v, other volumes %v, found %v; want none, one of nfs, and nothing", want, r.Others,
			codesOf(r))
	}
}

func TestAnAttacherIsSeenByItsLeaseItsWorkloadOrWhatItAttached(t *testing.T) {
	controller := func(name string, ready int32) *appsv1.StatefulSet {
		s := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "storage", Name: "controller"},
			Status: appsv1.StatefulSetStatus{ReadyReplicas: ready}}
		s.Spec.Template.Spec.Containers = []corev1.Container{{Image: "registry.k8s.io/sig-storage/csi-attacher:v4.9.0"},
			{Args: []string{"--driver-name=" + name}}}
		return s
	}
	const byVolumes = "VolumeAttachments (1 attached)"
	for name, tt := range map[string]struct {
		leases    []*coordinationv1.Lease
		workloads []*appsv1.StatefulSet
		want      string
	}{
		"Lease": {[]*coordinationv1.Lease{lease("external-attacher-leader-disk-example-com", noon)}, nil,
			"Lease storage/external-attacher-leader-disk-example-com"},
		"Lease of another driver": {[]*coordinationv1.Lease{lease("external-attacher-leader-other", noon)}, nil, byVolumes},
		"workload":                {nil, []*appsv1.StatefulSet{controller(disk, 1)}, "StatefulSet storage/controller"},
		"workload, not ready":     {nil, []*appsv1.StatefulSet{controller(disk, 0)}, byVolumes},
		"workload of another":     {nil, []*appsv1.StatefulSet{controller("other", 1)}, byVolumes},
	} {
		f := sound(t)
		f.Attachers.Items, f.StatefulSets.Items = tt.leases, tt.workloads
		if got := Examine(f, noon).Drivers[0].Attacher; got != tt.want {
			t.Errorf("%s: the attacher is seen by %q, want %q", name, got, tt.want)
		}
	}
}

func TestTheVersionsAreThoseOfTheDocumentation(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "install.md"))
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("Kubernetes %s, 1.36 or %s", oldest, newest)
	if !strings.Contains(string(text), want) {
		t.Errorf("docs/install.md has no %q", want)
	}
	bundle, err := os.ReadFile(filepath.Join("..", "..", "bundle", "manifests", "hawser.clusterserviceversion.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("minKubeVersion: %s.0", oldest); !strings.Contains(string(bundle), want) {
		t.Errorf("the bundle has no %q", want)
	}
}
