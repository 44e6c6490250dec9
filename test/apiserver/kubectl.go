/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package apiserver

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Kubeconfig writes a file that gives kubectl, or a program, the access of the config: the administrator's, or that of
// the account which it impersonates.
func Kubeconfig(t *testing.T, config *rest.Config) string {
	t.Helper()
	file := clientcmdapi.NewConfig()
	file.Clusters["test"] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	file.AuthInfos["admin"] = &clientcmdapi.AuthInfo{
		ClientCertificateData: config.CertData, ClientKeyData: config.KeyData,
		Impersonate: config.Impersonate.UserName, ImpersonateGroups: config.Impersonate.Groups,
		ImpersonateUserExtra: config.Impersonate.Extra,
	}
	file.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "admin"}
	file.CurrentContext = "test"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*file, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// ServiceAccount returns a config that acts as a service account, with a token that names these nodes.
func ServiceAccount(config *rest.Config, namespace, name string, nodes ...string) *rest.Config {
	account := rest.CopyConfig(config)
	account.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + namespace + ":" + name,
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
	}
	if len(nodes) > 0 {
		account.Impersonate.Extra = map[string][]string{"authentication.kubernetes.io/node-name": nodes}
	}
	return account
}

// Kubectl runs kubectl in the directory config and returns its output. Where the API server has no mutating admission
// policies, it leaves them out of a kustomization (-k), as the component for Kubernetes 1.35 does.
func Kubectl(t *testing.T, kubeconfig, stdin string, args ...string) string {
	t.Helper()
	stdout, err := TryKubectl(t, kubeconfig, stdin, args...)
	if err != nil {
		t.Fatalf("kubectl %v: %v, want success", args, err)
	}
	return stdout
}

// TryKubectl is Kubectl for a command that may fail. The error has what the command printed.
func TryKubectl(t *testing.T, kubeconfig, stdin string, args ...string) (string, error) {
	t.Helper()
	args = withoutMutatingPolicies(t, args)
	cmd := exec.CommandContext(t.Context(), filepath.Join(os.Getenv(AssetsVariable), "kubectl"), args...)
	cmd.Dir = filepath.Join(Root(), "config")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	cmd.Stdin = strings.NewReader(stdin)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%w\n%s%s", err, &stderr, &stdout)
	}
	return stdout.String(), nil
}

// Kustomization is an overlay. The names of its directories are relative to config, unless they are absolute.
type Kustomization struct {
	Resources, Components []string
	// Namespace and NamePrefix change the names of everything, if they are not empty.
	Namespace, NamePrefix string
}

// Write writes the kustomization into a new directory and returns that.
func (k Kustomization) Write(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	text := fmt.Sprintf("resources: [%s]\ncomponents: [%s]\n",
		relative(t, dir, k.Resources), relative(t, dir, k.Components))
	if k.Namespace != "" {
		text += "namespace: " + k.Namespace + "\n"
	}
	if k.NamePrefix != "" {
		text += "namePrefix: " + k.NamePrefix + "\n"
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// relative returns the paths from dir to these directories, as a list in YAML.
func relative(t *testing.T, dir string, directories []string) string {
	t.Helper()
	var paths []string
	for _, directory := range directories {
		if !filepath.IsAbs(directory) {
			directory = filepath.Join(Root(), "config", directory)
		}
		path, err := filepath.Rel(dir, directory)
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	return strings.Join(paths, ", ")
}

// Overlay returns the directory of a kustomization that adds a component to a base.
func Overlay(t *testing.T, base, component string) string {
	t.Helper()
	return Kustomization{Resources: []string{base}, Components: []string{component}}.Write(t)
}
