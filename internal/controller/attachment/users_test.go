/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/hawser-io/hawser/internal/controller/attachment/decision"
	"github.com/hawser-io/hawser/internal/controller/batch"
)

// podOn is a pod on node a that names the claim.
func podOn(namespace, claim string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "p"},
		Spec: corev1.PodSpec{NodeName: "a", Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}}}},
	}
}

func TestUpstreamKeepsAVolumeForItsPodsAndWhatItsKubeletLists(t *testing.T) {
	listing := nodeNamed("a")
	listing.Status.VolumesInUse = []corev1.UniqueVolumeName{"v"}
	ended := podOn("default", "data")
	ended.Status.Phase = corev1.PodSucceeded
	elsewhere := podOn("default", "data")
	elsewhere.Spec.NodeName = "b"
	claims := []client.ObjectKey{{Namespace: "default", Name: "data"}, {Namespace: "other", Name: "data"}}
	for _, test := range []struct {
		name  string
		live  []client.Object
		bound []client.ObjectKey
		node  []func(*decision.Node)
		free  bool
	}{
		{"nobody uses it", []client.Object{nodeNamed("a")}, claims, nil, true},
		{"a pod does", []client.Object{nodeNamed("a"), podOn("default", "data")}, claims, nil, false},
		{"a pod of another claim's namespace does", []client.Object{nodeNamed("a"), podOn("other", "data")},
			claims, nil, false},
		{"a pod with another claim", []client.Object{nodeNamed("a"), podOn("default", "other")}, claims, nil, true},
		{"a pod that has ended", []client.Object{nodeNamed("a"), ended}, claims, nil, true},
		{"a pod on another node", []client.Object{nodeNamed("a"), elsewhere}, claims, nil, true},
		{"the kubelet lists it", []client.Object{listing}, claims, nil, false},
		{"the kubelet lists it, and no claim is bound to it", []client.Object{listing}, nil, nil, false},
		{"no claim is bound to it", []client.Object{nodeNamed("a"), podOn("default", "data")}, nil, nil, true},
		{"its Node is gone, and the kubelet may have mounted it", nil, claims, []func(*decision.Node){missing}, false},
		{"the same, and no claim is bound to it", nil, nil, []func(*decision.Node){missing}, false},
		{"its Node is gone, and the kubelet had not mounted it", nil, claims, []func(*decision.Node){missing, covered}, true},
		{"its Node is gone, and the cache still has it", nil, claims, []func(*decision.Node){covered}, false},
		{"its Node came back, and the agent was not heard since", []client.Object{nodeNamed("a")}, claims,
			[]func(*decision.Node){returned}, false},
		{"its Node came back, and the cache still has the earlier one", []client.Object{nodeNamed("a")}, claims,
			[]func(*decision.Node){covered, func(n *decision.Node) { n.NodeUID = "earlier" }}, false},
		{"its Node is gone, and a pod of that node is left", []client.Object{podOn("default", "data")}, claims,
			[]func(*decision.Node){missing, covered}, false},
		{"its Node is gone, and evidence replaces its agent", nil, claims, []func(*decision.Node){forced}, true},
		{"the cache has a pod", []client.Object{nodeNamed("a")}, claims, []func(*decision.Node){pods}, false},
		{"evidence stands in for its pods", []client.Object{listing, podOn("default", "data")}, claims,
			[]func(*decision.Node){forced}, true},
		{"also for those of the cache", []client.Object{listing}, claims, []func(*decision.Node){pods, forced}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, now := over(t, test.live...)
			behind(t, c)
			free, since, err := c.freeOfPods(t.Context(), &decision.Facts{Volume: "v", Bound: test.bound},
				on("a", test.node...))
			if err != nil || free != test.free || !since.Equal(now.Now()) {
				t.Errorf("volume v on node a: free %t since %s, error %v; want %t since %s", free, since, err, test.free, now.Now())
			}
		})
	}
}

func TestTheUsersOfAVolumeAreKnownSinceTheOldestAnswer(t *testing.T) {
	c, now := over(t, nodeNamed("a"))
	known := map[string]time.Duration{"a/default": -2 * time.Second, "a/other": -3 * time.Second, "a/third": -time.Second}
	c.users = batch.NewReads(nil, func(_ context.Context, key string) (*users, error) {
		return &users{since: now.Now().Add(known[key]), node: nodeNamed("a")}, nil
	})
	for _, test := range []struct {
		namespaces []string
		since      time.Duration
	}{{[]string{"default"}, -2 * time.Second}, {[]string{"default", "other"}, -3 * time.Second},
		{[]string{"other", "third"}, -3 * time.Second}} {
		f := &decision.Facts{Volume: "v"}
		for _, n := range test.namespaces {
			f.Bound = append(f.Bound, client.ObjectKey{Namespace: n, Name: "data"})
		}
		if free, since, err := c.freeOfPods(t.Context(), f, on("a")); err != nil || !free ||
			!since.Equal(now.Now().Add(test.since)) {
			t.Errorf("volume v with claims in %v: free %t since %s, error %v; want free since %s", test.namespaces, free,
				since.Sub(now.Now()), err, test.since)
		}
	}
}

func TestAMissingAnswerDoesNotProveThatAVolumeIsUnused(t *testing.T) {
	for _, fails := range []string{"*v1.Node", "*v1.PodList"} {
		c, _ := over(t, nodeNamed("a"))
		c.Reader = interceptor.NewClient(c.Reader.(client.WithWatch), interceptor.Funcs{
			Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, o client.Object,
				opts ...client.GetOption) error {
				if fmt.Sprintf("%T", o) == fails {
					return errDown
				}
				return w.Get(ctx, key, o, opts...)
			},
			List: func(ctx context.Context, w client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				if fmt.Sprintf("%T", list) == fails {
					return errDown
				}
				return w.List(ctx, list, opts...)
			},
		})
		f := &decision.Facts{Volume: "v", Bound: []client.ObjectKey{{Namespace: "default", Name: "data"}}}
		if free, _, err := c.freeOfPods(t.Context(), f, on("a")); free || !errors.Is(err, errDown) {
			t.Errorf("volume v while a %s cannot be read: free %t, error %v; want %v", fails, free, err, errDown)
		}
		// Without a namespace no pod is asked for.
		if free, _, err := c.freeOfPods(t.Context(), &decision.Facts{Volume: "v"},
			on("a")); free == (fails == "*v1.Node") || (err == nil) != free {
			t.Errorf("volume v without a claim while a %s cannot be read: free %t, error %v; want an error for the Node alone",
				fails, free, err)
		}
	}
}
