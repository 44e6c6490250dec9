/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package docs

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"text/template"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hawser-io/hawser/test/apiserver"
)

// cluster is an API server with Hawser's manifests and with the objects of testdata/cluster.yaml, and a directory from
// which a user would run the commands.
type cluster struct {
	dir         string
	environment []string
	api         client.Client
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	config, api := apiserver.Start(t)
	c := &cluster{dir: t.TempDir(), api: api}
	kubeconfig := apiserver.Kubeconfig(t, config)
	apiserver.Kubectl(t, kubeconfig, "", "config", "set-context", "--current", "--namespace=shop")
	testdata, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	c.environment = append(os.Environ(), "KUBECONFIG="+kubeconfig, "HOME="+t.TempDir(),
		"PATH="+filepath.Join(testdata, "bin")+":"+c.dir+":"+os.Getenv("PATH"))
	apiserver.Kubectl(t, kubeconfig, "", "apply", "-k", "namespace")
	create(t, api)
	for _, kustomization := range []string{"standalone", "default", "observer"} {
		apiserver.Kubectl(t, kubeconfig, "", "apply", "-k", kustomization)
	}
	rollOut(t, api)
	applyExamples(t, kubeconfig, api)
	c.files(t)
	return c
}

// create the objects, each with its status. Finalizers and taints of nodes are those of the file.
func create(t *testing.T, api client.Client) {
	t.Helper()
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(render(t)), 4096)
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(object); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		if len(object.Object) == 0 {
			continue
		}
		status, has := object.Object["status"]
		if err := api.Create(t.Context(), object); err != nil {
			t.Fatalf("creating %s %s: %v", object.GetKind(), object.GetName(), err)
		}
		if !has {
			continue
		}
		object.Object["status"] = status
		if err := api.Status().Update(t.Context(), object); err != nil {
			t.Fatalf("writing the status of %s %s: %v", object.GetKind(), object.GetName(), err)
		}
	}
}

func render(t *testing.T) []byte {
	t.Helper()
	now := time.Now()
	functions := template.FuncMap{
		"list":  func(names ...string) []string { return names },
		"now":   func() string { return now.UTC().Format(time.RFC3339) },
		"micro": func() string { return now.UTC().Format(metav1.RFC3339Micro) },
	}
	page, err := template.New("cluster.yaml").Funcs(functions).ParseFiles(filepath.Join("testdata", "cluster.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := page.Execute(&text, nil); err != nil {
		t.Fatal(err)
	}
	return text.Bytes()
}

// rollOut reports the workloads as rolled out, as their controllers would.
func rollOut(t *testing.T, api client.Client) {
	t.Helper()
	for _, kind := range []string{"Deployment", "DaemonSet"} {
		workloads := &unstructured.UnstructuredList{}
		workloads.SetAPIVersion("apps/v1")
		workloads.SetKind(kind)
		if err := api.List(t.Context(), workloads); err != nil {
			t.Fatal(err)
		}
		for i := range workloads.Items {
			w := &workloads.Items[i]
			replicas, _, _ := unstructured.NestedInt64(w.Object, "spec", "replicas")
			w.Object["status"] = map[string]any{"observedGeneration": w.GetGeneration(), "replicas": replicas,
				"updatedReplicas": replicas, "readyReplicas": replicas, "availableReplicas": replicas,
				"numberMisscheduled": int64(0), "currentNumberScheduled": int64(0), "desiredNumberScheduled": int64(0),
				"numberReady": int64(0), "conditions": []any{map[string]any{"type": "Available", "status": "True"}}}
			if err := api.Status().Update(t.Context(), w); err != nil {
				t.Fatalf("writing the status of %s: %v", w.GetName(), err)
			}
		}
	}
}

// files that commands read, and the plugin.
func (c *cluster) files(t *testing.T) {
	t.Helper()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(c.dir, "kubectl-hawser"),
		"./cmd/kubectl-hawser")
	build.Dir = apiserver.Root()
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the plugin: %v\n%s", err, output)
	}
	for _, directory := range []string{"config", "examples"} {
		if err := os.Symlink(filepath.Join(apiserver.Root(), directory), filepath.Join(c.dir, directory)); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{
		"kustomization.yaml": "resources: [config/default]\n",
		"intent.yaml": "apiVersion: volumes.hawser.io/v1alpha1\nkind: VolumeAttachmentIntent\n" +
			"metadata: {namespace: shop, name: new}\n" +
			"spec: {nodeName: node-a, volume: {persistentVolumeClaim: {claimName: data}}}\n",
	} {
		if err := os.WriteFile(filepath.Join(c.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// run a command as a user would, in bash.
func (c *cluster) run(t *testing.T, text string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", text)
	cmd.Dir, cmd.Env = c.dir, c.environment
	output, err := cmd.CombinedOutput()
	return string(output), err
}
