/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package images

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/apiserver"
	"github.com/hawser-io/hawser/test/bundle/layout"
	"github.com/hawser-io/hawser/test/system"
)

const (
	// releasesVariable names the directory with both releases. It enables the test.
	releasesVariable = "HAWSER_TEST_RELEASE"
	// The releases that hack/releases.sh makes.
	firstRelease, nextRelease = "v0.1.0", "v0.1.1"
	observer                  = "hawser-observer"
)

// releases is a cluster whose nodes have the images of two releases. Nothing else is used of Hawser than their files.
type releases struct {
	suite
	dir string
}

// way is one of those in which users install.
type way struct {
	name string
	// install also upgrades.
	install func(t *testing.T, version string)
	remove  func(t *testing.T)
}

// TestReleaseIsInstalledUpgradedAndRemovedInEachWay also compares what there is before and after.
func TestReleaseIsInstalledUpgradedAndRemovedInEachWay(t *testing.T) {
	dir := os.Getenv(releasesVariable)
	if dir == "" {
		t.Skip("not asked for: make test-release runs this test")
	}
	r := releases{newSuite(t), dir}
	for _, node := range r.Nodes {
		for _, version := range []string{firstRelease, nextRelease} {
			for _, name := range []string{"operator", "manager", "agent"} {
				check(t, r.ImportImage(limited(t), node, r.file(version, name+"_"+version+".tar")))
			}
		}
	}
	check(t, r.PlayNetwork(limited(t), true))
	r.kubectl(t, "apply", "-f", filepath.Join("testdata", "recreate.yaml"))
	r.claim(t, ofIntent)
	r.awaitDrivers(t)
	r.labelNodes(t)
	// A new manager waits 40 s for agents that it has not heard, so every node has one.
	r.kubectl(t, "label", "node", nodeB, agentLabel+"=true")
	check(t, r.ShareKubeletDir(limited(t), nodeB, nodeA))
	before, err := r.inventory(t)
	check(t, err)
	for _, w := range []way{r.withKubectl(t), r.withHelm(t), r.withOLM()} {
		if !t.Run(w.name, func(t *testing.T) { r.live(t, w, before) }) {
			return
		}
	}
	t.Run("the observer", func(t *testing.T) { r.observe(t, before) })
}

// file of a release.
func (r releases) file(version, name string) string { return filepath.Join(r.dir, version, name) }

// live goes through the life of an installation. A volume that is in use does not notice the upgrade.
func (r releases) live(t *testing.T, w way, before inventory) {
	begin := time.Now()
	w.install(t, firstRelease)
	intent := r.publishIntent(t)
	t.Logf("from the first command to the first Ready volume: %s", time.Since(begin).Round(time.Second/10))
	r.awaitVersion(t, firstRelease)
	r.askPlugin(t, intent)
	mounts := r.volumeMounts(t, nodeA, nil)
	w.install(t, nextRelease)
	r.awaitVersion(t, nextRelease)
	differ(t, "mounts of volumes after the upgrade", mounts, r.volumeMounts(t, nodeA, nil))
	check(t, r.Client.Delete(limited(t), intent))
	r.explain(t, r.AwaitGone(limited(t), intent.Namespace, intent.Name))
	r.awaitUnused(t)
	r.kubectl(t, "delete", "volumemanager", "cluster", "--timeout=2m")
	w.remove(t)
	r.expectAsBefore(t, before)
}

// awaitVersion waits until operator, manager and agents report the version.
func (r releases) awaitVersion(t *testing.T, version string) {
	t.Helper()
	r.awaitManager(t, func(vm *volumesv1alpha1.VolumeManager) bool { return isRolledOut(vm, version) })
	for _, node := range r.Nodes {
		_, err := r.AwaitNode(limited(t), node, func(state *volumesv1alpha1.NodeVolumeState) bool {
			return state != nil && state.Status.AgentVersion == version
		})
		r.explain(t, err)
	}
}

// withKubectl: install.yaml in an overlay of the user's.
func (r releases) withKubectl(t *testing.T) way {
	overlay := t.TempDir()
	check(t, system.OverlayOf(overlay, "install.yaml", r.initialSpec(t, volumesv1alpha1.AttachCoexist)))
	return way{"install.yaml with kubectl", func(t *testing.T, version string) {
		text, err := os.ReadFile(r.file(version, "install.yaml"))
		check(t, err)
		check(t, os.WriteFile(filepath.Join(overlay, "install.yaml"), text, 0o600))
		r.kubectl(t, "apply", "-k", overlay)
		r.awaitInstalled(t)
	}, func(t *testing.T) { r.kubectl(t, "delete", "-k", overlay) }}
}

// withHelm: the chart.
func (r releases) withHelm(t *testing.T) way {
	spec := "initialSpec=" + r.initialSpec(t, volumesv1alpha1.AttachCoexist)
	installed := ""
	chart := func(version string) string {
		return r.file(version, "hawser-"+strings.TrimPrefix(version, "v")+".tgz")
	}
	return way{"the chart with helm", func(t *testing.T, version string) {
		if installed == "" {
			r.helm(t, "install", "hawser", chart(version), "--namespace", hawser, "--create-namespace", "--set-json", spec)
			r.kubectl(t, "label", "namespace", hawser, "pod-security.kubernetes.io/enforce=privileged")
		} else {
			r.helm(t, "upgrade", "hawser", chart(version), "--namespace", hawser, "--reset-then-reuse-values")
		}
		installed = version
		r.awaitInstalled(t)
	}, func(t *testing.T) {
		r.helm(t, "uninstall", "hawser", "--namespace", hawser, "--wait")
		kinds := filepath.Join(t.TempDir(), "kinds.yaml")
		check(t, os.WriteFile(kinds, []byte(r.helm(t, "template", "hawser", chart(installed), "--show-only",
			"templates/crds.yaml")), 0o600))
		r.kubectl(t, "delete", "-f", kinds)
		r.deleteNamespace(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: hawser}})
	}}
}

// withOLM: the bundle. OLM applies the objects of the next bundle over those of the one before, and deletes those that
// the next one does not have: the names of roles contain the version.
func (r releases) withOLM() way {
	var objects []*unstructured.Unstructured
	var namespace *corev1.Namespace
	return way{"the bundle as OLM does", func(t *testing.T, version string) {
		unpacked, err := filepath.Abs(t.TempDir())
		check(t, err)
		r.run(t, "tar", "-xzf", r.file(version, "bundle_"+version+".tar.gz"), "-C", unpacked)
		bundle := filepath.Join(unpacked, "bundle")
		if namespace == nil {
			namespace, err = layout.Namespace(bundle, hawser)
			check(t, err)
			r.create(t, namespace)
		}
		earlier := objects
		objects, err = layout.Objects(bundle, hawser)
		check(t, err)
		for _, object := range objects {
			if object.GetKind() == "Deployment" {
				r.configure(t, object, func(image string) string { return image })
			}
			check(t, r.Client.Apply(limited(t), client.ApplyConfigurationFromUnstructured(object.DeepCopy()),
				client.FieldOwner("olm")))
		}
		for _, object := range earlier {
			if !slices.ContainsFunc(objects, func(o *unstructured.Unstructured) bool {
				return o.GroupVersionKind() == object.GroupVersionKind() && o.GetName() == object.GetName()
			}) {
				check(t, r.Client.Delete(limited(t), object))
			}
		}
		r.awaitInstalled(t)
	}, func(t *testing.T) { r.deleteBundle(t, objects, namespace) }}
}

// askPlugin installs the plugin with krew, and asks it about a volume that is in use.
func (r releases) askPlugin(t *testing.T, intent *volumesv1alpha1.VolumeAttachmentIntent) {
	t.Helper()
	root := t.TempDir()
	archives, err := filepath.Glob(r.file(firstRelease, "kubectl-hawser_"+firstRelease+"_linux_*.tar.gz"))
	check(t, err)
	if len(archives) != 1 {
		t.Fatalf("archives of the plugin for this machine: %q, want one", archives)
	}
	t.Setenv("KREW_ROOT", root)
	t.Setenv("KREW_NO_UPGRADE_CHECK", "1")
	r.run(t, tool("krew"), "install", "--manifest="+r.file(firstRelease, "hawser-krew.yaml"), "--archive="+archives[0])
	plugin := filepath.Join(root, "bin", "kubectl-hawser")
	out := r.run(t, plugin, "why", "intent", intent.Name, "-n", intent.Namespace, "--kubeconfig="+r.Kubeconfig())
	if !strings.Contains(out, intent.Namespace+"/"+intent.Name) {
		t.Errorf("kubectl hawser why intent %s printed %q, want the intent in it", intent.Name, out)
	}
}

// observe installs the observer where Hawser is not. The nodes have no pod network, so its pod has to share theirs.
func (r releases) observe(t *testing.T, before inventory) {
	manifests := r.file(firstRelease, "observer.yaml")
	r.kubectl(t, "apply", "-f", manifests)
	r.kubectl(t, "label", "namespace", observer, "--overwrite", "pod-security.kubernetes.io/enforce=privileged")
	r.kubectl(t, "-n", observer, "delete", "replicasets", "--all") // a new one tries at once
	_, err := r.Kubectl(limited(t), "-n", observer, "wait", "deployment", observer, "--for=condition=Available",
		"--timeout=2m")
	r.explain(t, err)
	r.kubectl(t, "delete", "-f", manifests)
	r.expectAsBefore(t, before)
}

func (r releases) helm(t *testing.T, args ...string) string {
	t.Helper()
	return r.run(t, tool("helm"), append(slices.Clone(args), "--kubeconfig", r.Kubeconfig())...)
}

// tool is a program that make has built.
func tool(name string) string { return filepath.Join(apiserver.Root(), ".cache", "tools", name) }

// run returns what a program printed.
func (r releases) run(t *testing.T, program string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(limited(t), program, args...)
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(apiserver.Root(), ".cache", "bin")+":"+os.Getenv("PATH"))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", program, strings.Join(args, " "), err, out, stderr.String())
	}
	return string(out)
}
