/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package placement

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// besideOthers are the nodes that other users leave to the pod, or the user that is waited for. A user that is being
// deleted is not waited for here: the volume is attached elsewhere only after it has gone. The candidates are the nodes
// that pod and volumes allow; they are costly.
func (v *volumeFacts) besideOthers(candidates func() []*corev1.Node) (alternatives, *waiting) {
	switch {
	case v.exclusive():
		return v.besideHolder(candidates)
	case v.unplaced():
		if staying := v.users.staying(); len(staying) > 0 {
			// The cache lists them in any order, and the message is to stay the same.
			first := slices.MinFunc(staying, func(a, b user) int { return strings.Compare(a.name, b.name) })
			return nil, waitFor(volumesv1alpha1.ReasonWaitForFirstConsumer, "the claim is not bound, and %s comes first: its "+
				"node decides where the volume is", described([]user{first}))
		}
	}
	return anyNode(), nil
}

// besideHolder: an exclusive volume that has users is on their node. The pod waits until they have gone, unless the
// pod can run on that node only.
func (v *volumeFacts) besideHolder(candidates func() []*corev1.Node) (alternatives, *waiting) {
	staying := v.users.staying()
	if len(staying) == 0 {
		return v.besideRemains()
	}
	if v.singleUser() {
		return nil, waitFor(volumesv1alpha1.ReasonReadWriteOncePod, "the access mode ReadWriteOncePod allows a single user, "+
			"which is %s", described(staying))
	}
	holder := v.users.holder()
	if holder == "" {
		return nil, waitFor(volumesv1alpha1.ReasonVolumeInUse, "the volume may be used on one node only, and %s comes first "+
			"but has no node yet", described(staying))
	}
	if possible := candidates(); len(possible) == 1 && possible[0].Name == holder {
		return pin(holder), nil
	}
	onHolder := slices.DeleteFunc(staying, func(u user) bool { return u.node != holder })
	return nil, waitFor(volumesv1alpha1.ReasonVolumeInUse, "the volume may be used on one node only and is held by node "+
		"%s: %s. The pod is placed once that has gone; a pod that may run on node %s only is placed beside it", holder,
		described(onHolder), holder)
}

// besideRemains: nothing wants the volume any more, and a node uses it all the same. It is not detached before that
// ends.
func (v *volumeFacts) besideRemains() (alternatives, *waiting) {
	if len(v.users.all) > 0 || len(v.users.present) == 0 {
		return anyNode(), nil
	}
	return nil, waitFor(volumesv1alpha1.ReasonVolumeInUse, "the volume may be used on one node only and is still in use "+
		"on node %s (kubectl get nvs %s -o yaml shows by what), although no pod and no intent wants it there",
		strings.Join(v.users.present, ", "), v.users.present[0])
}

// holder is the node of the users: the one that has the lock if there are several. It is empty if no user has a node.
func (u users) holder() string {
	var nodes []string
	for _, user := range u.staying() {
		if user.node != "" {
			nodes = append(nodes, user.node)
		}
	}
	slices.Sort(nodes)
	switch {
	case slices.Contains(nodes, u.lock):
		return u.lock
	case len(nodes) > 0:
		return nodes[0]
	}
	return ""
}

const namedUsers = 3

// described names users of the pod's namespace and counts the others.
func described(users []user) string {
	var list []string
	foreign := 0
	for _, u := range users {
		switch {
		case u.name == "":
			foreign++
		case !slices.Contains(list, u.name):
			list = append(list, u.name)
		}
	}
	slices.Sort(list)
	if more := len(list) - namedUsers; more > 0 {
		list = append(list[:namedUsers:namedUsers], fmt.Sprintf("%d more", more))
	}
	if foreign > 0 {
		list = append(list, fmt.Sprintf("%d in other namespaces", foreign))
	}
	return strings.Join(list, ", ")
}
