/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package secrets reads the Secrets of the node's volumes.
//
// All agents share one service account, which may read no Secret. The manager keeps an account for each node, and Roles
// that name the Secrets of that node's volumes. The agent requests a token of its node's account; an admission policy
// refuses it the token of any other.
package secrets

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/oauth2"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hawser-io/hawser/internal/install"
)

// +kubebuilder:rbac:groups="",resources=serviceaccounts/token,namespace=hawser-system,verbs=create

const (
	// lifetime of a token: the least that the API server accepts, and the most that the policy does. The volumes that
	// come within this time share one token.
	lifetime = 10 * time.Minute
	// margin is how long before its end a token is replaced, for clocks that differ and requests that are slow.
	margin = time.Minute
	// requestTimeout of a request for a token.
	requestTimeout = 30 * time.Second
)

// Options of a Reader.
type Options struct {
	// Config of the agent. The Reader takes from it where the API server is, not who the agent is.
	Config *rest.Config
	// Live requests tokens, as the agent.
	Live client.Client
	// Node of the agent, and the Namespace of the installation.
	Node, Namespace string
}

// Reader reads Secrets as the account of its node. It makes its first request when it first reads.
type Reader struct {
	account client.ObjectKey
	tokens  oauth2.TokenSource
	client  client.Client
	// unusable is why the node can have no account.
	unusable error
}

// NewReader returns a Reader.
func NewReader(o Options) (*Reader, error) {
	account, err := install.NodeAccount(o.Node)
	if err != nil {
		return &Reader{unusable: err}, nil
	}
	r := &Reader{account: client.ObjectKey{Namespace: o.Namespace, Name: account}}
	tokens := transport.NewCachedTokenSource(&source{live: o.Live, node: o.Node, account: r.account})
	config := rest.AnonymousClientConfig(o.Config)
	config.Dial = nil // a lost connection of this client does not end the agent's session
	config.Wrap(transport.ResettableTokenSourceWrapTransport(tokens))
	r.tokens = tokens
	r.client, err = client.New(config, client.Options{Scheme: o.Live.Scheme(), Mapper: o.Live.RESTMapper()})
	if err != nil {
		return nil, fmt.Errorf("making a client for Secrets: %w", err)
	}
	return r, nil
}

// Get reads a Secret live. The agent may come before the manager, which then allows it soon.
func (r *Reader) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if r.unusable != nil {
		return r.unusable
	}
	if _, err := r.tokens.Token(); err != nil {
		return err
	}
	err := r.client.Get(ctx, key, o, opts...)
	if apierrors.IsUnauthorized(err) {
		err = r.client.Get(ctx, key, o, opts...) // with a new token: the transport has dropped the old one
	}
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("the manager has not allowed it to service account %s (yet); it can in a namespace where its own "+
			"account is bound to ClusterRole hawser-secret-granter: %w", r.account, err)
	}
	return err
}

// source requests tokens.
type source struct {
	live    client.Client
	node    string
	account client.ObjectKey
}

// Token requests a token that is bound to the Node.
func (s *source) Token() (*oauth2.Token, error) {
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.account.Namespace, Name: s.account.Name}}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: ptr.To(int64(lifetime / time.Second)),
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Node", Name: s.node},
	}}
	err := s.live.SubResource("token").Create(ctx, account, request)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("service account %s does not exist (yet); the manager creates it for the first Secret "+
			"that a volume on the node needs: %w", s.account, err)
	}
	if err != nil {
		return nil, fmt.Errorf("requesting a token of service account %s: %w", s.account, err)
	}
	return &oauth2.Token{
		AccessToken: request.Status.Token, Expiry: request.Status.ExpirationTimestamp.Add(-margin),
	}, nil
}
