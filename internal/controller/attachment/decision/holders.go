/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package decision

import (
	"fmt"
	"slices"
	"strings"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/index"
)

// namedHolders is how many holders a message names; the others are counted.
const namedHolders = 5

// Contested reports whether intents want the volume on a node while another node has to do with it.
func Contested(f *Facts) bool {
	return len(f.Nodes) > 1 && slices.ContainsFunc(f.Nodes, func(n *Node) bool {
		return len(n.Wanted) > 0 || len(n.Refused) > 0
	})
}

// userName names the pod, if the intent was created for one, otherwise the intent.
func (i *Intent) userName() string {
	if pod, _, ok := index.PodOf(i.Object); ok {
		return "pod " + i.Object.Namespace + "/" + pod
	}
	return "intent " + i.Name()
}

// userNames of the volume on the node: named in order where they are in that namespace, otherwise counted.
func (n *Node) userNames(namespace string) (named []string, foreign int) {
	seen := map[string]bool{}
	note := func(from, user, suffix string) {
		switch {
		case seen[user]:
		case from == namespace:
			named = append(named, user+suffix)
		default:
			foreign++
		}
		seen[user] = true
	}
	for _, i := range n.Wanted {
		note(i.Object.Namespace, i.userName(), "")
	}
	for _, i := range n.Leaving {
		note(i.Object.Namespace, i.userName(), " (being released)")
	}
	for _, pod := range n.Holders {
		note(pod.Namespace, "pod "+pod.String(), "")
	}
	slices.Sort(named)
	return named, foreign
}

// heldBy names the users that have, or come first for, an exclusive volume. It names no user of another namespace
// than the reader's, and says the same as long as nothing changes.
func heldBy(nodes []*Node, namespace string) string {
	message := "the volume may be used on one node only and is held by "
	for at, n := range nodes {
		if at > 0 {
			message += ", and by "
		}
		message += "node " + n.Name
		if holders := n.describeHolders(namespace); holders != "" {
			message += ": " + holders
		}
	}
	for _, n := range nodes {
		for i := range n.Attachments {
			if e := n.Attachments[i].DetachError; e != nil {
				message += "; its detach fails: " + e.Message
			}
		}
	}
	return message
}

func (n *Node) describeHolders(namespace string) string {
	named, foreign := n.userNames(namespace)
	if more := len(named) - namedHolders; more > 0 {
		named = append(named[:namedHolders:namedHolders], fmt.Sprintf("%d more", more))
	}
	if foreign > 0 {
		named = append(named, fmt.Sprintf("%d in other namespaces", foreign))
	}
	if len(named) == 0 && len(n.Attachments) > 0 {
		named = append(named, "VolumeAttachment "+n.Attachments[0].Name)
	}
	return strings.Join(named, ", ")
}

// RefusalOf of an intent that others keep out of its node.
func RefusalOf(f *Facts, refused *Node, i *Intent) *Finding {
	if !f.SingleUser {
		return tooManyUses(refused, i)
	}
	for _, n := range f.Nodes {
		if len(n.Wanted)+len(n.Leaving) == 0 {
			continue
		}
		who := "a user in another namespace"
		if named, _ := n.userNames(i.Object.Namespace); len(named) > 0 {
			who = named[0]
		}
		return not(volumesv1alpha1.ReasonReadWriteOncePod,
			"the volume's access mode ReadWriteOncePod allows a single user, which is %s on node %s", who, n.Name)
	}
	return nil
}
