/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package cli

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/explain/facts"
	"github.com/hawser-io/hawser/test/apiserver"
)

// mostRequests is how many requests one report may cost, whatever the size of the cluster.
const mostRequests = 30

// counting counts requests, and what lists return.
type counting struct {
	facts.Reader
	requests, unlimited int
	listed              map[string]int
}

func (c *counting) Installed(ctx context.Context) (bool, error) {
	c.requests++
	return c.Reader.Installed(ctx)
}

func (c *counting) Attachments(ctx context.Context) ([]facts.Attachment, error) {
	c.requests++
	return c.Reader.Attachments(ctx)
}

func (c *counting) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption,
) error {
	c.requests++
	return c.Reader.Get(ctx, key, into, options...)
}

func (c *counting) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	c.requests++
	given := (&client.ListOptions{}).ApplyOptions(options)
	if given.Limit == 0 {
		c.unlimited++
	}
	if given.FieldSelector != nil || given.LabelSelector != nil {
		defer func() { c.listed[fmt.Sprintf("%T", into)] += listLen(into) }()
	}
	return c.Reader.List(ctx, into, options...)
}

// crowd repeats the objects of a fixture, so that the cluster has thousands that are not asked about.
func crowd(t *testing.T, f fixture, times int) fixture {
	t.Helper()
	others := readFixture(t, "testdata/crowd.yaml", noon)
	documents := f.documents
	for i := range times {
		for _, document := range others.documents {
			documents = append(documents, fmt.Sprintf(document, i))
		}
	}
	f.documents = documents
	return f
}

// others is how many objects of each kind a large cluster has: more than a page.
const others = 600

func TestAReportCostsAsManyRequestsInALargeCluster(t *testing.T) {
	for _, name := range []string{"pod-multi-attach", "intent-held-elsewhere", "node-orphan-and-stuck-detach",
		"volume-in-use", "claim-without-class", "set-two-causes", "attachment-twice", "manager-agent-silent"} {
		t.Run(name, func(t *testing.T) {
			small := one(t, name, noon)
			few := &counting{Reader: newFakeReader(t, small), listed: map[string]int{}}
			explainFixture(t, small, few, noon)
			many := &counting{Reader: newFakeReader(t, crowd(t, small, others)), listed: map[string]int{}}
			start := time.Now()
			explainFixture(t, small, many, noon)
			t.Logf("%d requests, %s with %d other objects of each kind", many.requests, time.Since(start), others)
			if many.requests != few.requests || many.requests > mostRequests {
				t.Errorf("%d requests in a small cluster and %d in a large one, want the same number of at most %d",
					few.requests, many.requests, mostRequests)
			}
			if many.unlimited > 0 {
				t.Errorf("%d lists have no limit, want one for each", many.unlimited)
			}
			for list, n := range many.listed {
				if n != few.listed[list] {
					t.Errorf("selectors let %d objects of %s through, want %d as in a small cluster", n, list, few.listed[list])
				}
			}
		})
	}
}

func listLen(list client.ObjectList) int {
	n := 0
	_ = meta.EachListItem(list, func(k8sruntime.Object) error { n++; return nil }) // it only fails for no list
	return n
}

// measured are all commands that read, with arguments for the fixture of a move.
var measured = []string{
	"why pvc data -n shop", "why pv pv-1", "why intent data-on-node-a -n shop", "why node node-a",
	"tree pv pv-1", "tree node node-a", "top", "top node-a", "orphans", "orphans node-a", "history pv-1",
	"plan drain node-a", "plan fence node-a", "plan move data --to node-b -n shop", "move data --to node-b -n shop",
	"drain node-a --to node-b", "drain node-a --delete-intents",
}

// fill creates volumes of another namespace on nodes that are not asked about: claim, PersistentVolume, attachment and
// intent of each, and a node state for a hundred of them.
func fill(t *testing.T, c client.Client, volumes int) {
	t.Helper()
	const perNode = 100
	if err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "others"}}); err != nil {
		t.Fatal(err)
	}
	var group errgroup.Group
	group.SetLimit(16)
	for i := range volumes {
		group.Go(func() error {
			for _, object := range otherVolume(i, fmt.Sprintf("other-node-%d", i/perNode)) {
				if err := c.Create(t.Context(), object); err != nil {
					return err
				}
			}
			return nil
		})
		if i%perNode == 0 {
			group.Go(func() error { return otherState(t.Context(), c, i/perNode, perNode) })
		}
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
}

func otherVolume(i int, node string) []client.Object {
	name := fmt.Sprintf("other-%d", i)
	claim := &volumesv1alpha1.PersistentVolumeClaimSource{ClaimName: name}
	return []client.Object{
		&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Capacity:    corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: "disk.example.com", VolumeHandle: name}}}},
		&storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.VolumeAttachmentSpec{
			Attacher: "disk.example.com", NodeName: node,
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &name}}},
		&volumesv1alpha1.VolumeAttachmentIntent{ObjectMeta: metav1.ObjectMeta{Namespace: "others", Name: name},
			Spec: volumesv1alpha1.VolumeAttachmentIntentSpec{NodeName: node,
				Volume: volumesv1alpha1.VolumeSource{PersistentVolumeClaim: claim}}},
	}
}

// otherState creates a node state with volumes in use.
func otherState(ctx context.Context, c client.Client, node, volumes int) error {
	state := &volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("other-node-%d", node)}}
	for i := range volumes {
		state.Spec.Attachments = append(state.Spec.Attachments, volumesv1alpha1.NodeAttachment{
			VolumeName:    fmt.Sprintf("kubernetes.io/csi/disk.example.com^other-%d-%d", node, i),
			AttachmentUID: types.UID(fmt.Sprintf("uid-%d-%d", node, i)), State: volumesv1alpha1.AttachmentAttached,
			Driver: "disk.example.com", VolumeHandle: fmt.Sprintf("other-%d-%d", node, i)})
	}
	lines := state.DeepCopy().Spec.Attachments
	if err := c.Create(ctx, state); err != nil {
		return err
	}
	for _, e := range lines {
		state.Status.Volumes = append(state.Status.Volumes, volumesv1alpha1.NodeVolume{VolumeName: e.VolumeName,
			AttachmentUID: e.AttachmentUID, InUse: true, Used: resource.NewQuantity(1<<20, resource.BinarySI),
			Available: resource.NewQuantity(1<<30, resource.BinarySI)})
	}
	return c.Status().Update(ctx, state)
}

// renew renews all Leases, as the agents and the manager would have while the cluster was filled.
func renew(t *testing.T, c client.Client) {
	t.Helper()
	leases := &coordinationv1.LeaseList{}
	if err := c.List(t.Context(), leases, client.InNamespace(volumesv1alpha1.InstallNamespace)); err != nil {
		t.Fatal(err)
	}
	for i := range leases.Items {
		leases.Items[i].Spec.RenewTime = ptr.To(metav1.NowMicro())
		if err := c.Update(t.Context(), &leases.Items[i]); err != nil {
			t.Fatal(err)
		}
	}
}

// volumesVariable is how many volumes the cluster of the next test has. docs/why.md has the times with 10,000.
const volumesVariable = "HAWSER_TEST_VOLUMES"

// The requests of every command are counted before the API server. Listings of all nodes read another page after a
// hundred nodes; nothing else costs more in a larger cluster.
func TestNoCommandCostsMoreRequestsInALargerCluster(t *testing.T) {
	config, c := apiserver.Borrow(t)
	world(t).create(t, c)
	p := newProxy(t, config)
	count := func(args string) (requests, pages int) {
		var out, errOut bytes.Buffer
		exit := Run(t.Context(), append(strings.Fields(args), "--server", p.URL),
			genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut})
		if exit != Fine {
			t.Errorf("%s: exit code %d, want %d; stderr %q, stdout:\n%s", args, exit, Fine, errOut.String(), out.String())
		}
		reads, pages := p.counts()
		return len(reads), pages
	}
	before := map[string]int{}
	for _, args := range measured {
		before[args], _ = count(args)
	}
	volumes := 600 // more than a page of intents
	if n, err := strconv.Atoi(os.Getenv(volumesVariable)); err == nil {
		volumes = n
	}
	fill(t, c, volumes)
	renew(t, c)
	for _, args := range measured {
		start := time.Now()
		requests, pages := count(args)
		t.Logf("%s: %d requests, %d ms with %d volumes", args, requests, time.Since(start).Milliseconds(), volumes)
		listing := args == "top" || args == "orphans"
		if !listing && pages > 0 || requests-pages != before[args] || requests > mostRequests {
			t.Errorf("%s: %d requests, %d of them for further pages, and %d in a small cluster; want the same, at most %d, "+
				"and no further page", args, requests, pages, before[args], mostRequests)
		}
	}
}
