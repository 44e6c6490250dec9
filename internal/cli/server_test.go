/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/explain"
	"github.com/hawser-io/hawser/internal/explain/catalog"
	"github.com/hawser-io/hawser/internal/explain/facts"
	"github.com/hawser-io/hawser/internal/explain/server"
	"github.com/hawser-io/hawser/test/apiserver"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Main(m)) }

// codes of the findings of a report, in order.
func codes(r *explain.Report) []string {
	var list []string
	for _, f := range r.Findings {
		list = append(list, f.Code)
	}
	return list
}

// installedAs is a cluster with Hawser installed or not. The API server of the tests always serves Hawser's kinds.
type installedAs struct {
	facts.Reader
	installed bool
}

func (r installedAs) Installed(context.Context) (bool, error) { return r.installed, nil }

// The API server sets the times of creation itself, so the reports are made as of ten minutes later, and two causes
// that differ only in which object was created first are not among them.
func TestTheSameCausesAreFoundOnARealAPIServer(t *testing.T) {
	if os.Getenv(apiserver.AssetsVariable) == "" {
		t.Skipf("LEFT OUT (needs %s)", apiserver.AssetsVariable)
	}
	later := time.Now().Add(10 * time.Minute)
	for _, f := range fixtures(t, later) {
		if strings.HasPrefix(f.name, "attachment-claim-created-again") {
			continue
		}
		t.Run(f.name, func(t *testing.T) {
			config, c := apiserver.Borrow(t)
			f.create(t, c)
			r, err := server.New(config, program)
			if err != nil {
				t.Fatal(err)
			}
			real := installedAs{r, f.installed}
			got, want := explainFixture(t, f, real, later), explainFixture(t, f, newFakeReader(t, f), later)
			if !slices.Equal(codes(got), codes(want)) {
				t.Errorf("%s on a real API server finds %v, want %v as in testdata/why/%s.txt; the report:\n%s",
					strings.Join(f.args, " "), codes(got), codes(want), f.name, text(got, false, false))
			}
		})
	}
}

// run runs a command as a user and returns its output and exit code.
func run(t *testing.T, config *rest.Config, args ...string) (stdout, stderr string, exit int) {
	t.Helper()
	return runWith(t, append(args, "--kubeconfig", apiserver.Kubeconfig(t, config))...)
}

func runAt(t *testing.T, server string, args ...string) (stdout, stderr string, exit int) {
	t.Helper()
	return runWith(t, append(slices.Clip(args), "--server", server)...)
}

func runWith(t *testing.T, args ...string) (stdout, stderr string, exit int) {
	t.Helper()
	var out, errOut bytes.Buffer
	exit = Run(t.Context(), args, genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut})
	return out.String(), errOut.String(), exit
}

// as acts as a user without any right but those that a test gives.
func as(config *rest.Config, user string) *rest.Config {
	config = rest.CopyConfig(config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	return config
}

func one(t *testing.T, name string, now time.Time) fixture {
	t.Helper()
	return readFixture(t, "testdata/why/"+name+".yaml", now)
}

// grant gives a user rights in the namespace shop.
func grant(t *testing.T, c client.Client, user string, groups, resources, verbs []string) {
	t.Helper()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: user},
		Rules: []rbacv1.PolicyRule{{APIGroups: groups, Verbs: verbs, Resources: resources}}}
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: user},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}}}
	for _, object := range []client.Object{role, binding} {
		if err := c.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAUserOfOneNamespaceSeesWhatTheUserMayReadAndWhatNot(t *testing.T) {
	config, c := apiserver.Borrow(t)
	f := one(t, "pod-multi-attach", time.Now())
	f.create(t, c)
	grant(t, c, "dev", []string{""}, []string{"pods", "persistentvolumeclaims", "events"}, []string{"get", "list"})
	stdout, stderr, exit := run(t, as(config, "dev"), append(f.args, "-o", "json")...)
	if exit != Findings {
		t.Fatalf("exit code %d, want %d; stderr: %s", exit, Findings, stderr)
	}
	var got struct{ Reports []*explain.Report }
	if err := json.Unmarshal([]byte(stdout), &got); err != nil {
		t.Fatalf("the output is no JSON: %v\n%s", err, stdout)
	}
	if found := codes(got.Reports[0]); !slices.Contains(found, catalog.OfReason(catalog.MultiAttach).Code) {
		t.Errorf("findings %v, want the one of the pod's event, which the user may read", found)
	}
	for _, kind := range []string{"PersistentVolume", "Node"} {
		if !slices.ContainsFunc(got.Reports[0].Chain, func(l explain.Link) bool {
			return l.Object.Kind == kind && l.State == explain.Unknown
		}) {
			t.Errorf("the chain %+v has no unreadable %s in its place", got.Reports[0].Chain, kind)
		}
	}
}

func TestAUserWithoutRightsIsNamedWhatTheUserMayNotRead(t *testing.T) {
	config, c := apiserver.Borrow(t)
	f := one(t, "pod-running", time.Now())
	f.create(t, c)
	stdout, stderr, exit := run(t, as(config, "stranger"), f.args...)
	if exit != Failed || stdout != "" || !strings.Contains(stderr, "you may not read Pod web in namespace shop") {
		t.Errorf("exit code %d, stdout %q, stderr %q; want %d and a sentence about the pod", exit, stdout, stderr, Failed)
	}
}

func TestAWrongNameIsAnError(t *testing.T) {
	config, _ := apiserver.Borrow(t)
	for _, kind := range mainKinds {
		for _, format := range []string{"", "json"} {
			stdout, stderr, exit := run(t, config, "why", kind, "wrong", "-o", format)
			if exit != Failed || stdout != "" || !strings.Contains(stderr, "there is no "+kinds[kind]+" wrong") {
				t.Errorf("why %s wrong -o %q: exit code %d, stdout %q, stderr %q; want %d and that there is none",
					kind, format, exit, stdout, stderr, Failed)
			}
		}
	}
}

// deleteKinds deletes Hawser's kinds, and waits until the API server does not list them in its discovery: it still does
// for some time after the last CustomResourceDefinition is gone, and reports no event when it stops.
func deleteKinds(t *testing.T, config *rest.Config) {
	t.Helper()
	apiserver.Kubectl(t, apiserver.Kubeconfig(t, config), "", "delete", "-f", "crd/bases")
	c, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	gone := func(ctx context.Context) (bool, error) {
		err := c.RESTClient().Get().AbsPath("/apis", volumesv1alpha1.GroupVersion.Group).Do(ctx).Error()
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	}
	if err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, gone); err != nil {
		t.Fatalf("waiting until the API server does not list Hawser's kinds: %v", err)
	}
}

func TestWithoutHawserPodsAreExplainedAndIntentsAreNot(t *testing.T) {
	config, c := apiserver.Borrow(t)
	f := one(t, "pod-driver-missing", time.Now())
	f.create(t, c)
	deleteKinds(t, config)
	stdout, stderr, exit := run(t, config, f.args...)
	for _, want := range []string{"HWS209", "HWS803"} {
		if exit != Findings || !strings.Contains(stdout, want) {
			t.Errorf("why pod: exit code %d, want %d and %s; stderr %q, stdout:\n%s", exit, Findings, want, stderr, stdout)
		}
	}
	_, stderr, exit = run(t, config, "why", "intent", "data")
	if exit != Failed || !strings.Contains(stderr, "Hawser is not installed in this cluster") {
		t.Errorf("why intent: exit code %d, stderr %q; want %d and that Hawser is not installed", exit, stderr, Failed)
	}
}

func TestTheNamespaceOfHawserIsFoundOnARealAPIServer(t *testing.T) {
	config, c := apiserver.Borrow(t)
	f := one(t, "intent-ready", time.Now())
	for i := range f.documents {
		f.documents[i] = strings.ReplaceAll(f.documents[i], "hawser-system", "storage")
	}
	f.create(t, c)
	for flag, want := range map[string]string{"": "Lease storage/hawser-agent-node-b: renewed",
		"--hawser-namespace=elsewhere": "Lease elsewhere/hawser-agent-node-b: does not exist"} {
		stdout, stderr, _ := run(t, config, append(slices.Clone(f.args), strings.Fields(flag)...)...)
		if !strings.Contains(stdout, want) {
			t.Errorf("%s: no %q in the report; stderr %q, stdout:\n%s", flag, want, stderr, stdout)
		}
	}
}

func TestNamesAreCompleted(t *testing.T) {
	config, c := apiserver.Borrow(t)
	one(t, "intent-ready", time.Now()).create(t, c)
	one(t, "set-without-node", time.Now()).only("VolumeAttachmentIntentSet").create(t, c)
	one(t, "attachment-used", time.Now()).only("VolumeAttachment").create(t, c)
	for args, want := range map[string]string{
		"why ":                "volumemanager",
		"why node ":           "node-b",
		"why vai ":            "data-on-node-b",
		"why pvc ":            "data",
		"why pv ":             "pv-1",
		"why pod ":            ":4", // none, and no files
		"why set ":            "cache",
		"tree vais ":          "cache",
		"history attachment ": "va-1",
		"why node x":          ":4",
	} {
		fields := append([]string{"__complete", "-n", "shop", "--kubeconfig", apiserver.Kubeconfig(t, config)},
			strings.Split(args, " ")...)
		var out, errOut bytes.Buffer
		Run(t.Context(), fields, genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut})
		if !slices.Contains(strings.Fields(out.String()), want) {
			t.Errorf("completing %q offers %q, want %q", args, out.String(), want)
		}
	}
}

// The report about the files must not depend on objects that do not exist yet.
func TestFilesAreAnalysedBeforeTheyAreApplied(t *testing.T) {
	config, c := apiserver.Borrow(t)
	one(t, "pod-node-affinity", time.Now()).create(t, c)
	for name, tt := range map[string]struct {
		file string
		want []string
		exit int
	}{
		"an intent for a node that the volume excludes": {
			"{apiVersion: volumes.hawser.io/v1alpha1, kind: VolumeAttachmentIntent, metadata: {name: new}, " +
				"spec: {nodeName: node-b, volume: {persistentVolumeClaim: {claimName: data}}}}",
			[]string{"HWS119", "not applied yet"}, Findings},
		"an intent for a claim that does not exist": {
			"{apiVersion: volumes.hawser.io/v1alpha1, kind: VolumeAttachmentIntent, metadata: {name: new}, " +
				"spec: {nodeName: node-b, volume: {persistentVolumeClaim: {claimName: none}}}}",
			[]string{"HWS101"}, Findings},
		"a pod and its claim of a class that does not exist": {
			"{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: fresh}, spec: {storageClassName: none}}\n---\n" +
				"{apiVersion: v1, kind: Pod, metadata: {name: fresh}, spec: {containers: [], volumes: " +
				"[{name: v, persistentVolumeClaim: {claimName: fresh}}]}}",
			[]string{"HWS622", "Pod shop/fresh"}, Findings},
		"a kind that is not analysed": {
			"{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}",
			[]string{"HWS901"}, Fine},
		"an unknown kind": {
			"{apiVersion: x/v1, kind: Thing, metadata: {name: a}}",
			[]string{"HWS901"}, Fine},
		"a field that does not exist": {
			"{apiVersion: v1, kind: Pod, metadata: {name: a}, spek: {}}",
			[]string{"spek"}, Failed},
		"a file without an object": {
			"# nothing\n",
			[]string{"no object"}, Failed},
		"a pod that names no volume of a claim": {
			"{apiVersion: v1, kind: Pod, metadata: {name: a}}",
			[]string{"HWS902"}, Fine},
	} {
		t.Run(name, func(t *testing.T) {
			path := t.TempDir() + "/file.yaml"
			if err := os.WriteFile(path, []byte(tt.file), 0o600); err != nil {
				t.Fatal(err)
			}
			stdout, stderr, exit := run(t, config, "why", "-f", path, "-n", "shop")
			for _, want := range tt.want {
				if exit != tt.exit || !strings.Contains(stdout+stderr, want) {
					t.Errorf("exit code %d, want %d and %q; stderr %q, stdout:\n%s", exit, tt.exit, want, stderr, stdout)
				}
			}
		})
	}
}

func TestAFieldThatCannotBeChangedIsReported(t *testing.T) {
	config, c := apiserver.Borrow(t)
	one(t, "intent-ready", time.Now()).create(t, c)
	path := t.TempDir() + "/file.yaml"
	file := "{apiVersion: volumes.hawser.io/v1alpha1, kind: VolumeAttachmentIntent, metadata: {name: data-on-node-b}, " +
		"spec: {nodeName: node-c, volume: {persistentVolumeClaim: {claimName: data}}}}"
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, exit := run(t, config, "why", "-f", path, "-n", "shop")
	want := fmt.Sprintf("spec.nodeName is %q in the cluster and %q in the file", "node-b", "node-c")
	if exit != Findings || !strings.Contains(stdout, "HWS903") || !strings.Contains(stdout, want) {
		t.Errorf("exit code %d, want %d, HWS903 and %s; stderr %q, stdout:\n%s", exit, Findings, want, stderr, stdout)
	}
}

func TestTheClockOfTheUsersMachineDoesNotDecideWhetherAnAgentIsAlive(t *testing.T) {
	if os.Getenv(apiserver.AssetsVariable) == "" {
		t.Skipf("LEFT OUT (needs %s)", apiserver.AssetsVariable)
	}
	config, _ := apiserver.Borrow(t)
	for _, off := range []time.Duration{-time.Hour, -51 * time.Second, 51 * time.Second, time.Hour} {
		r, err := server.New(config, program)
		if err != nil {
			t.Fatal(err)
		}
		r.Clock.Local = func() time.Time { return time.Now().Add(off) }
		if _, err := r.Installed(t.Context()); err != nil {
			t.Fatal(err)
		}
		if wrong := time.Until(r.Clock.Now()).Abs(); wrong > 5*time.Second {
			t.Errorf("time of the API server on a machine that is off by %s: wrong by %s, want a second or so", off, wrong)
		}
	}
}
