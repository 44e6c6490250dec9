/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package install

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
)

func TestTheAccountOfANodeNamesItAndNoOtherNode(t *testing.T) {
	longest := strings.Repeat("n", 235)
	for _, node := range []string{"a", "node-a", "ip-10-0-0-1.example.com", longest} {
		account, err := NodeAccount(node)
		if err != nil {
			t.Errorf("node %q: %v, want an account", node, err)
			continue
		}
		if problems := validation.IsDNS1123Subdomain(account); problems != nil {
			t.Errorf("account %q of node %q is no name of a service account: %v", account, node, problems)
		}
		if got := NodeOfAccount(account); got != node {
			t.Errorf("account %q belongs to node %q, want %q", account, got, node)
		}
	}
	if account, err := NodeAccount(longest + "n"); err == nil || !strings.Contains(err.Error(), "235 characters") {
		t.Errorf("a node with a name of 236 characters has account %q and error %v, want an error that names the limit",
			account, err)
	}
}

func TestOtherAccountsBelongToNoNode(t *testing.T) {
	for _, account := range []string{"", "hawser-agent", "hawser-agent-pool", "acme-hawser-agent-node-a", "default"} {
		if got := NodeOfAccount(account); got != "" {
			t.Errorf("account %q belongs to node %q, want none", account, got)
		}
	}
}
