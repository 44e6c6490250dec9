/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package decision

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/handshake"
)

// forPod makes the intents ones that were made for a pod.
func forPod(pod string) func(*Node) {
	return func(n *Node) {
		for _, i := range n.Wanted {
			uid := types.UID("uid-of-" + pod)
			i.Object.Labels = map[string]string{volumesv1alpha1.PodUIDLabel: string(uid)}
			i.Object.OwnerReferences = []metav1.OwnerReference{{
				APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Pod", Name: pod, UID: uid, Controller: ptr.To(true),
			}}
		}
	}
}

func holders(pods ...string) func(*Node) {
	return func(n *Node) {
		for _, pod := range pods {
			namespace, name, _ := strings.Cut(pod, "/")
			n.Holders = append(n.Holders, types.NamespacedName{Namespace: namespace, Name: name})
		}
	}
}

func in(namespace string) func(*Node) {
	return func(n *Node) {
		for _, i := range append(append([]*Intent{}, n.Wanted...), n.Leaving...) {
			i.Object.Namespace = namespace
		}
	}
}

func TestTheMessageOnAnExclusiveVolumeNamesItsHolder(t *testing.T) {
	const prefix = "the volume may be used on one node only and is held by "
	for _, c := range []struct {
		name  string
		nodes []*Node
		want  string
	}{
		{"an intent by its name", []*Node{on("a", wanted("i"))}, "node a: intent default/i"},
		{"a pod instead of the intent that was made for it", []*Node{on("a", wanted("i"), forPod("db-0"))},
			"node a: pod default/db-0"},
		{"a pod once, however it is known", []*Node{on("a", wanted("i"), forPod("db-0"), holders("default/db-0"))},
			"node a: pod default/db-0"},
		{"a pod that has the volume through the kubelet", []*Node{on("a", holders("default/web"))},
			"node a: pod default/web"},
		{"who is on its way out", []*Node{on("a", leaving("i"))}, "node a: intent default/i (being released)"},
		{"in order, whatever the order of finding", []*Node{on("a", wanted("z", "b"), holders("default/web", "default/db"))},
			"node a: intent default/b, intent default/z, pod default/db, pod default/web"},
		{"others by number",
			[]*Node{on("a", wanted("theirs", "theirs-too"), in("secret"), holders("default/web", "secret/x"))},
			"node a: pod default/web, 3 in other namespaces"},
		{"the first few of many",
			[]*Node{on("a", holders("default/1", "default/2", "default/3", "default/4", "default/5", "default/6", "default/7"))},
			"node a: pod default/1, pod default/2, pod default/3, pod default/4, pod default/5, 2 more"},
		{"an attachment of which nothing else is known", []*Node{on("a", va("1"))}, "node a: VolumeAttachment va-1"},
		{"nobody", []*Node{on("a", entry(handshake.Attached, "1"))}, "node a"},
		{"two nodes", []*Node{on("a", wanted("i")), on("b", va("2"))},
			"node a: intent default/i, and by node b: VolumeAttachment va-2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := heldBy(c.nodes, "default"); got != prefix+c.want {
				t.Errorf("holders of the volume:\ngot  %s\nwant %s", got, prefix+c.want)
			}
		})
	}
}

func TestAMessageReportsThatTheDetachFromTheHolderFails(t *testing.T) {
	n := on("a", va("1"))
	n.Attachments[0].DetachError = &storagev1.VolumeError{Message: "the array is on fire"}
	if got := heldBy([]*Node{n}, "default"); !strings.HasSuffix(got, "; its detach fails: the array is on fire") {
		t.Errorf("message on the holder on node a: %q, want its detach error at the end", got)
	}
}

func TestASingleUserIsNamedAsThePodThatItIs(t *testing.T) {
	f := Facts{SingleUser: true, Nodes: []*Node{on("a", wanted("i"), forPod("db-0"))}}
	if got := RefusalOf(&f, f.Nodes[0], intentNamed("other")).Message; !strings.Contains(got,
		"pod default/db-0 on node a") {
		t.Errorf("message of the refusal: %q, want pod default/db-0 on node a", got)
	}
	f.Nodes[0].Wanted[0].Object.Namespace = "secret"
	if got := RefusalOf(&f, f.Nodes[0], intentNamed("other")).Message; strings.Contains(got, "db-0") ||
		!strings.Contains(got, "another namespace") {
		t.Errorf("message of the refusal in another namespace: %q, want another namespace and no name", got)
	}
}

func ExampleLimit_message() {
	fmt.Println(Limit{Known: true, Max: 3, Used: 3}.Message("node-a", "loop.csi.hawser.io"))
	// Output: node node-a has 3 of 3 volumes of driver loop.csi.hawser.io
}
