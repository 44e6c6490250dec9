/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package cluster runs the control plane for all contenders: etcd and kube-apiserver with their defaults, and an audit
// log of all requests of the contenders.
package cluster

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/apiserver"
	"github.com/hawser-io/hawser/test/system"
)

// auditPolicy records one line for each request of a contender, and one more for each watch at its beginning.
// Requests of the instruments cost the API server no line.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  userGroups: [` + administrators + `]
- level: Metadata
`

// Administrators are exempt from the API server's priority and fairness.
const administrators = "system:masters"

// instruments are one user of the API server.
const instruments = "bench:instruments"

// Cluster is a running control plane.
type Cluster struct {
	dir   string
	env   *envtest.Environment
	admin string
	// token of the instruments.
	token  string
	system *system.System
}

// Options of a control plane.
type Options struct {
	// Fsync has etcd flush each write to the disk, as by default.
	Fsync bool
	// FeatureGates of the API server.
	FeatureGates string
}

// Start starts a control plane in dir, which must not exist. Of Hawser it has only the kinds.
func Start(dir string, o Options) (*Cluster, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("resolving %s: %w", dir, err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, fmt.Errorf("creating the cluster's directory: %w", err)
	}
	c := &Cluster{dir: dir, token: rand.Text(), system: system.Open(system.Options{Dir: dir})}
	policy, err := c.write("audit-policy.yaml", []byte(auditPolicy))
	if err != nil {
		return nil, err
	}
	tokens,
		err := c.write("tokens.csv", fmt.Appendf(nil, "%s,%s,%s,%s\n", c.token, instruments, instruments, administrators))
	if err != nil {
		return nil, err
	}
	c.env = &envtest.Environment{
		CRDDirectoryPaths:        []string{filepath.Join(apiserver.Root(), "config", "crd", "bases")},
		ErrorIfCRDPathMissing:    true,
		Scheme:                   apiserver.Scheme(),
		BinaryAssetsDirectory:    Program(""),
		ControlPlaneStartTimeout: time.Minute,
	}
	c.env.ControlPlane.GetAPIServer().Configure().
		Append("token-auth-file", tokens).
		Append("audit-policy-file", policy).
		Append("audit-log-path", c.system.AuditLog()).
		Append("audit-log-maxsize", "100000") // MiB: a rotation would lose requests
	c.env.ControlPlane.Etcd = &envtest.Etcd{}
	if o.FeatureGates != "" {
		c.env.ControlPlane.GetAPIServer().Configure().Append("feature-gates", o.FeatureGates)
	}
	etcd := c.env.ControlPlane.Etcd.Configure().Append("quota-backend-bytes", "8589934592")
	if !o.Fsync {
		etcd.Append("unsafe-no-fsync", "true") // the disk is not measured
	}
	if _, err := c.env.Start(); err != nil {
		return nil, fmt.Errorf("starting the control plane: %w", err)
	}
	c.admin, err = c.Kubeconfig("admin", "bench:admin", administrators)
	return c, err
}

// Stop stops the control plane. The directory with the logs stays.
func (c *Cluster) Stop() error {
	if err := c.env.Stop(); err != nil {
		return fmt.Errorf("stopping the control plane: %w", err)
	}
	return nil
}

// Dir of the cluster.
func (c *Cluster) Dir() string { return c.dir }

// Program is the path of one of the control plane's programs.
func Program(name string) string { return filepath.Join(apiserver.Root(), ".cache", "bin", name) }

// Instruments is a client configuration for the parts of the benchmark, which have all rights and no limits.
// Each client has its own connections. They use a token, because the API server verifies a certificate with
// each request, which costs more.
func (c *Cluster) Instruments() *rest.Config {
	config := rest.AnonymousClientConfig(c.env.Config)
	config.BearerToken, config.QPS, config.Burst, config.DisableCompression = c.token, -1, -1, true
	config.Dial = (&net.Dialer{}).DialContext
	return config
}

// Administrator creates a user of that name with all rights.
func (c *Cluster) Administrator(name string) (*rest.Config, error) {
	user, err := c.user(name, administrators)
	if err != nil {
		return nil, err
	}
	return user.Config(), nil
}

// serviceAccount is a client configuration for Hawser's service account of that name, with a token like its pods'.
func (c *Cluster) serviceAccount(ctx context.Context, name string) (*rest.Config, error) {
	token, err := c.serviceAccountToken(ctx, name)
	if err != nil {
		return nil, err
	}
	config := rest.AnonymousClientConfig(c.env.Config)
	config.BearerToken, config.QPS, config.Burst = token, -1, -1
	return config, nil
}

// ServiceAccountKubeconfig writes a kubeconfig to the file for such a service account.
func (c *Cluster) ServiceAccountKubeconfig(ctx context.Context, file, name string) (string, error) {
	config, err := c.serviceAccount(ctx, name)
	if err != nil {
		return "", err
	}
	kubeconfig, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:  map[string]*clientcmdapi.Cluster{"": {Server: config.Host, CertificateAuthorityData: config.CAData}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"": {Token: config.BearerToken}},
		Contexts:  map[string]*clientcmdapi.Context{"": {}},
	})
	if err != nil {
		return "", fmt.Errorf("creating the kubeconfig of %s: %w", name, err)
	}
	return c.write(file+".kubeconfig", kubeconfig)
}

// tokenSeconds is longer than any run.
const tokenSeconds = 24 * 3600

func (c *Cluster) serviceAccountToken(ctx context.Context, name string) (string, error) {
	clients, err := kubernetes.NewForConfig(c.env.Config)
	if err != nil {
		return "", fmt.Errorf("creating a client: %w", err)
	}
	request := &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](tokenSeconds)}}
	answer, err := clients.CoreV1().ServiceAccounts(volumesv1alpha1.InstallNamespace).CreateToken(ctx, name, request,
		metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("creating a token for service account %s: %w", name, err)
	}
	return answer.Status.Token, nil
}

// Kubeconfig writes a kubeconfig to the file. Its user has a certificate, and the rights of its name and groups.
func (c *Cluster) Kubeconfig(file, name string, groups ...string) (string, error) {
	user, err := c.user(name, groups...)
	if err != nil {
		return "", err
	}
	kubeconfig, err := user.KubeConfig()
	if err != nil {
		return "", fmt.Errorf("creating the kubeconfig of %s: %w", name, err)
	}
	return c.write(file+".kubeconfig", kubeconfig)
}

// write writes a file into the cluster's directory, and returns its path.
func (c *Cluster) write(file string, content []byte) (string, error) {
	path := filepath.Join(c.dir, file)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return "", fmt.Errorf("writing %s: %w", file, err)
	}
	return path, nil
}

// user without client-side rate limits.
func (c *Cluster) user(name string, groups ...string) (*envtest.AuthenticatedUser, error) {
	user, err := c.env.ControlPlane.AddUser(envtest.User{Name: name, Groups: groups}, &rest.Config{QPS: -1, Burst: -1})
	if err != nil {
		return nil, fmt.Errorf("creating user %s: %w", name, err)
	}
	return user, nil
}

// Client of a user. It reads and writes live.
func Client(config *rest.Config) (client.WithWatch, error) {
	c, err := client.NewWithWatch(config, client.Options{Scheme: apiserver.Scheme()})
	if err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	return c, nil
}

// Apply applies manifests of the repository's config directory.
func (c *Cluster) Apply(ctx context.Context, flag, path string) error {
	return c.kubectl(ctx, "apply", "--server-side", flag, filepath.Join(apiserver.Root(), "config", path))
}

// Delete deletes what they created.
func (c *Cluster) Delete(ctx context.Context, flag, path string) error {
	return c.kubectl(ctx, "delete", flag, filepath.Join(apiserver.Root(), "config", path))
}

func (c *Cluster) kubectl(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, Program("kubectl"), append([]string{"--kubeconfig", c.admin}, args...)...)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, output.String())
	}
	return nil
}

// Mark returns the present end of the audit log.
func (c *Cluster) Mark() (system.AuditMark, error) { return c.system.Mark() }

// Requests since mark: each once, a watch at its beginning.
func (c *Cluster) Requests(mark system.AuditMark) ([]system.Request, error) {
	return c.system.Requests(mark)
}
