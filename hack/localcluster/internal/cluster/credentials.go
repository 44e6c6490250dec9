/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package cluster

import (
	"cmp"
	"context"
	"fmt"
	"os"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"

	"github.com/hawser-io/hawser/hack/localcluster/internal/pki"
)

// Tests may install Hawser under another namespace, and with a prefix before its names. The programs read the same
// variable POD_NAMESPACE.
var (
	// Namespace is where Hawser is installed.
	Namespace = cmp.Or(os.Getenv("POD_NAMESPACE"), "hawser-system")
	// ManagerAccount is the service account of the manager, in Namespace.
	ManagerAccount = os.Getenv("HAWSER_NAME_PREFIX") + "hawser-manager"
	// AgentAccount is the service account of all agents. Their tokens differ in the pod that they are bound to.
	AgentAccount = os.Getenv("HAWSER_NAME_PREFIX") + "hawser-agent"
)

const (
	// AttacherAccount is the service account of the external-attacher.
	AttacherAccount = "csi-attacher"
	// ProvisionerAccount is the service account of the external-provisioners.
	ProvisionerAccount = "csi-provisioner"
	// ResizerAccount is the service account of the external-resizers.
	ResizerAccount = "csi-resizer"

	tokenLifetimeSeconds = int64(365 * 24 * 3600)
)

// certificates creates all keys and certificates, and a kubeconfig for each user with a certificate.
func certificates(l Layout, p Ports, nodes []string) (*pki.Authority, error) {
	authority, err := pki.Open(l.pki())
	if err != nil {
		return nil, err
	}
	if _,
		err := authority.Server("apiserver",
		[]string{"127.0.0.1", "10.0.0.1", "localhost", "kubernetes.default.svc"}); err != nil {
		return nil, err
	}
	if err := authority.SigningKey("service-account"); err != nil {
		return nil, err
	}
	type client struct{ name, user, group, kubeconfig string }
	clients := []client{
		{"admin", "kubernetes-admin", "system:masters", l.AdminKubeconfig()},
		{controllerManager, "system:kube-controller-manager", "", l.Kubeconfig(controllerManager)},
	}
	for _, node := range nodes {
		clients = append(clients, client{"node-" + node, "system:node:" + node, "system:nodes", l.KubeletKubeconfig(node)})
	}
	for _, c := range clients {
		var groups []string
		if c.group != "" {
			groups = []string{c.group}
		}
		pair, err := authority.Client(c.name, c.user, groups...)
		if err != nil {
			return nil, err
		}
		user := &clientcmdapi.AuthInfo{ClientCertificateData: pair.Certificate, ClientKeyData: pair.Key}
		if err := writeKubeconfig(c.kubeconfig, p, authority, c.name, user); err != nil {
			return nil, err
		}
	}
	return authority, nil
}

func writeKubeconfig(path string, p Ports, a *pki.Authority, name string, user *clientcmdapi.AuthInfo) error {
	config := clientcmdapi.NewConfig()
	config.Clusters["localcluster"] = &clientcmdapi.Cluster{
		Server: p.Server(), CertificateAuthorityData: a.Certificate(),
	}
	config.AuthInfos[name] = user
	config.Contexts[name] = &clientcmdapi.Context{Cluster: "localcluster", AuthInfo: name}
	config.CurrentContext = name
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

// accounts creates the namespace and the service accounts, with a kubeconfig for those that run once in a cluster. The
// manifests that install Hawser grant their rights.
func accounts(ctx context.Context, client kubernetes.Interface, l Layout, p Ports, a *pki.Authority) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Namespace}}
	_, err := client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating namespace %s: %w", Namespace, err)
	}
	sidecars := []string{AttacherAccount, ProvisionerAccount, ResizerAccount}
	for _, name := range append([]string{ManagerAccount, AgentAccount}, sidecars...) {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
		_, err := client.CoreV1().ServiceAccounts(Namespace).Create(ctx, account, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("creating service account %s: %w", name, err)
		}
	}
	for _, account := range sidecars {
		if err := tokenKubeconfig(ctx, client, l.Kubeconfig(account), p, a, account, nil); err != nil {
			return err
		}
	}
	return tokenKubeconfig(ctx, client, l.Kubeconfig("manager"), p, a, ManagerAccount, nil)
}

// agentCredential creates the agent's pod, as its DaemonSet would, and a token bound to that pod. Only such a token
// contains the node's name, which admission policies check. A real kubelet runs the pod, with a program that does
// nothing. The pod of a simulated kubelet is only reported as running.
func agentCredential(ctx context.Context, client kubernetes.Interface, l Layout, p Ports, a *pki.Authority, node string,
	realKubelet bool) error {
	pods := client.CoreV1().Pods(Namespace)
	pod, err := pods.Create(ctx, agentPod(node), metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		pod, err = pods.Get(ctx, agentPod(node).Name, metav1.GetOptions{})
	}
	if err != nil {
		return fmt.Errorf("creating the agent's pod on %s: %w", node, err)
	}
	if !realKubelet && pod.Status.Phase != corev1.PodRunning {
		pod.Status.Phase = corev1.PodRunning
		pod.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now(),
		}}
		if pod, err = pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("reporting the agent's pod on %s: %w", node, err)
		}
	}
	reference := &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}
	return tokenKubeconfig(ctx, client, l.AgentKubeconfig(node), p, a, AgentAccount, reference)
}

func agentPod(node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:   "hawser-agent-" + node,
			Labels: map[string]string{"app.kubernetes.io/name": "hawser", "app.kubernetes.io/component": "agent"},
		},
		Spec: corev1.PodSpec{
			NodeName:                     node,
			ServiceAccountName:           AgentAccount,
			AutomountServiceAccountToken: ptr.To(false),
			// A DaemonSet's pods stay when their node fails. This pod must stay too, because its token depends on it.
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			HostNetwork: true,
			Containers:  []corev1.Container{{Name: "agent", Image: Image, ImagePullPolicy: corev1.PullNever}},
		},
	}
}

// tokenKubeconfig requests a token of a service account and writes a kubeconfig with it.
func tokenKubeconfig(
	ctx context.Context, client kubernetes.Interface, path string, p Ports, a *pki.Authority,
	account string, bound *authenticationv1.BoundObjectReference,
) error {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: ptr.To(tokenLifetimeSeconds), BoundObjectRef: bound,
	}}
	answer, err := client.CoreV1().ServiceAccounts(Namespace).CreateToken(ctx, account, request, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("requesting a token of %s: %w", account, err)
	}
	return writeKubeconfig(path, p, a, account, &clientcmdapi.AuthInfo{Token: answer.Status.Token})
}
