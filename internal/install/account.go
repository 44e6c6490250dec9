/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package install

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// nodeAccountPrefix begins the name of the service account with which the agent of a node reads Secrets. The admission
// policies hawser-agent-tokens and hawser-manager-secrets contain it, and an overlay does not change it.
const nodeAccountPrefix = "hawser-agent-node-"

// NodeAccountLabel is on these accounts, Roles and RoleBindings. The manager caches only what has it.
const NodeAccountLabel = "volumes.hawser.io/node-account"

// NodeAccount is the name of the service account with which the agent of this node reads Secrets. The Roles and
// RoleBindings that name these Secrets have the same name. A policy has to find the name from the node's, and cannot
// compute a hash. So a node whose name is too long has no such account.
func NodeAccount(node string) (string, error) {
	name := nodeAccountPrefix + node
	if len(name) > validation.DNS1123SubdomainMaxLength {
		return "", fmt.Errorf("node %s can have no Secrets: its name is longer than %d characters", node,
			validation.DNS1123SubdomainMaxLength-len(nodeAccountPrefix))
	}
	return name, nil
}

// NodeOfAccount is the node whose agent reads Secrets with this account, or "" if the account is none of these.
func NodeOfAccount(account string) string {
	node, ok := strings.CutPrefix(account, nodeAccountPrefix)
	if !ok {
		return ""
	}
	return node
}

// IsNodeAccess reports whether the manager made the account, Role or RoleBinding for a node. Another object of the name
// may have the label, but it belongs to no node state.
func IsNodeAccess(object metav1.Object) bool {
	node := NodeOfAccount(object.GetName())
	return node != "" && object.GetLabels()[NodeAccountLabel] == "true" &&
		slices.ContainsFunc(object.GetOwnerReferences(), func(owner metav1.OwnerReference) bool {
			return owner.Kind == "NodeVolumeState" && owner.Name == node
		})
}
