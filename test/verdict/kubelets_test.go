/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package verdict

import (
	"testing"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hawser-io/hawser/test/csiloop/faults"
	"github.com/hawser-io/hawser/test/system"
)

func TestAnExpansionThatFailsOnTheNode(t *testing.T) {
	t.Parallel()
	c, handle := becomesBound(t, sized(t, "grows-late", xfsClass, "512Mi"))
	pod(t, "grows-late", "grows-late", nodeA)
	runs(t, "grows-late")
	repair := fault(t, faults.Fault{Method: "NodeExpandVolume", Volume: handle, Code: codes.Internal,
		Message: "the filesystem is busy"})
	resize(t, c, "640Mi")
	s := stuck{kind: "pvc", name: "grows-late", admin: verdict{"HWS936", "HWS936", []string{"HWS628"}}}
	s.explained(t)
	repair()
	if _, err := sys.AwaitClaim(limited(t), namespace, c.Name, func(c *corev1.PersistentVolumeClaim) bool {
		return c.Status.Capacity.Storage().Equal(resource.MustParse("640Mi"))
	}); err != nil {
		t.Fatal(err)
	}
	s.fine(t)
}

// TestANodeThatIsIll has two situations, one after the other. Both are about what only a kubelet does.
func TestANodeThatIsIll(t *testing.T) {
	t.Parallel()
	bound(t, "csinode")
	remove(t, &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: nodeIll}})
	onNode(t, "csinode", nodeIll)
	s := stuck{kind: "pod", name: "csinode",
		admin: verdict{"HWS706", "HWS706", []string{"HWS202", "HWS708", "HWS702", "HWS209"}}}
	s.why(t, s.admin)
	again := stopped(t, system.NodeDriver(nodeIll))
	again()
	runs(t, s.name)
	s.fine(t)

	bound(t, "runtime")
	again = stopped(t, system.Containerd(nodeIll))
	onNode(t, "runtime", nodeIll)
	s = stuck{kind: "pod", name: "runtime", admin: verdict{"HWS709", "HWS709", []string{"HWS708", "HWS609"}}}
	s.why(t, s.admin)
	again()
	runs(t, s.name)
	s.fine(t)
}

// TestAContainerThatHasNoImage is about no volume, which the verdict has to notice.
func TestAContainerThatHasNoImage(t *testing.T) {
	t.Parallel()
	bound(t, "imageless")
	p := podOf("imageless", "imageless")
	p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: nodeB}
	p.Spec.Containers[0].Image = "localcluster.local/none:latest"
	create(t, p)
	s := stuck{kind: "pod", name: "imageless", admin: verdict{"HWS609", "", nil}}
	s.why(t, s.admin)
	patch := `[{"op":"replace","path":"/spec/containers/0/image","value":"` + system.Image + `"}]`
	if err := sys.Client.Patch(t.Context(), p, client.RawPatch(types.JSONPatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
	runs(t, s.name)
	s.fine(t)
}
