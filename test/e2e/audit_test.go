/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/hawser-io/hawser/test/system"
)

// large is enough for every filesystem: xfs needs 300 MiB.
func large(pvc *corev1.PersistentVolumeClaim) {
	pvc.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("512Mi")
}

// TestAnAgentRequestsOnlyItsOwnNode reads the API server's audit log. It checks that every request of an agent
// selects its node: by name, by field selector or by the object's name.
func TestAnAgentRequestsOnlyItsOwnNode(t *testing.T) {
	t.Parallel()
	v := newVolume(t)
	name := v.intent(nodeA)
	v.ready(name)
	v.release(name)

	requests, err := sys.Requests(0)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, r := range requests {
		if r.User.Username != system.AgentUser {
			continue
		}
		seen[r.Node()]++
		if !ownNode(r) {
			t.Errorf("agent of node %s requested %s %s, want requests for its own node alone", r.Node(), r.Verb, r.RequestURI)
		}
		if r.IsWrite() && (r.ObjectRef.Resource == "volumeattachmentintents" || r.ObjectRef.Resource == "nodevolumestates") &&
			r.ObjectRef.Subresource != "status" {
			t.Errorf("agent of node %s wrote %s %s, want writes of the status alone", r.Node(), r.Verb, r.RequestURI)
		}
	}
	if seen[nodeA] == 0 || seen[nodeB] == 0 {
		t.Fatalf("requests of agents in the audit log: %v, want some of %s and %s", seen, nodeA, nodeB)
	}
	t.Logf("%v requests of agents, each for its own node", seen)
}

// ownNode reports whether a request can only reach objects of the token's node.
func ownNode(r system.Request) bool {
	node := r.Node()
	if node == "" {
		return false
	}
	selects := func(field string) bool {
		return strings.Contains(r.RequestURI, "fieldSelector="+field+"%3D"+node)
	}
	switch r.ObjectRef.Resource {
	case "volumeattachmentintents":
		return selects("spec.nodeName") || r.ObjectRef.Name != "" // one intent by name, from the selected list
	case "nodevolumestates":
		return selects("metadata.name") || r.ObjectRef.Name == node
	case "nodes":
		return r.ObjectRef.Name == node
	case "leases":
		return strings.HasSuffix(r.ObjectRef.Name, node) || r.Verb == "create"
	case "serviceaccounts":
		return r.ObjectRef.Subresource == "token" && r.ObjectRef.Name == "hawser-agent-node-"+node
	case "events":
		return true
	}
	return !strings.HasPrefix(r.RequestURI, "/api/") && !strings.HasPrefix(r.RequestURI, "/apis/") ||
		r.ObjectRef.Resource == ""
}
