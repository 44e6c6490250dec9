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

// missingClass and stageSecret do not exist until a test creates them.
const missingClass, stageSecret = "fast", "key"

// TestProgramsThatAreStopped comes first, because all other tests need the programs.
func TestProgramsThatAreStopped(t *testing.T) {
	bound(t, "detached")
	first := pod(t, "detached-1", "detached", nodeA)
	runs(t, first.Name)
	startProvisioner := stopped(t, "csi-provisioner-"+system.DriverName)
	startAttacher := stopped(t, system.Attacher)
	claim(t, "unmade", class)
	remove(t, first)
	pod(t, "detached-2", "detached", nodeB)
	t.Run("the provisioner", func(t *testing.T) {
		t.Parallel()
		onNode(t, "unmade", nodeA)
		s := stuck{kind: "pod", name: "unmade", admin: verdict{"HWS624", "HWS624", []string{"HWS603"}}}
		s.explained(t)
		startProvisioner()
		_, err := sys.AwaitClaim(limited(t), namespace, s.name, func(c *corev1.PersistentVolumeClaim) bool {
			return c != nil && c.Status.Phase == corev1.ClaimBound
		})
		if err != nil {
			t.Fatal(err)
		}
	})
	t.Run("the attacher", func(t *testing.T) {
		t.Parallel()
		s := stuck{kind: "pod", name: "detached-2",
			admin:  verdict{"HWS704", "HWS704", []string{"HWS701", "HWS702", "HWS703"}},
			reader: verdict{"HWS701", "HWS701", []string{"HWS702"}}, later: "HWS703"}
		s.explained(t)
		startAttacher()
		runs(t, s.name)
		s.fine(t)
	})
}

func TestAVolumeThatAPodOnAnotherNodeUses(t *testing.T) {
	t.Parallel()
	bound(t, "multi")
	first := pod(t, "multi-1", "multi", nodeA)
	runs(t, first.Name)
	pod(t, "multi-2", "multi", nodeB)
	s := stuck{kind: "pod", name: "multi-2", admin: verdict{"HWS713", "HWS713", []string{"HWS701"}},
		reader: verdict{"HWS701", "HWS701", nil}}
	s.explained(t)
	remove(t, first) // the doctor names it as the holder, and the event too
	runs(t, s.name)
	s.fine(t)
}

func TestAClassThatDoesNotExist(t *testing.T) {
	t.Parallel()
	claim(t, "classless", missingClass)
	pod(t, "classless", "classless", nodeA)
	s := stuck{kind: "pod", name: "classless", admin: verdict{"HWS622", "HWS622", []string{"HWS603"}}}
	s.explained(t)
	create(t, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: missingClass}, Provisioner: system.DriverName})
	runs(t, s.name)
	s.fine(t)
}

func TestASecretOfTheStageThatDoesNotExist(t *testing.T) {
	t.Parallel()
	claim(t, "secretless", secretClass)
	pod(t, "secretless", "secretless", nodeA)
	s := stuck{kind: "pod", name: "secretless", admin: verdict{"HWS610", "HWS610", nil}}
	s.explained(t)
	create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: stageSecret}})
	runs(t, s.name)
	s.fine(t)
}

func TestAnAttachThatTheDriverRefuses(t *testing.T) {
	t.Parallel()
	_, handle := bound(t, "refused")
	repair := fault(t, faults.Fault{Method: "ControllerPublishVolume", Volume: handle, Code: codes.Internal,
		Message: "the storage refuses the node"})
	pod(t, "refused", "refused", nodeA)
	s := stuck{kind: "pod", name: "refused", admin: verdict{"HWS202", "HWS202", []string{"HWS702", "HWS708"}},
		reader: verdict{"HWS702", "HWS702", []string{"HWS708"}}}
	s.explained(t)
	repair()
	runs(t, s.name)
	s.fine(t)
}

func TestAStageThatFails(t *testing.T) {
	t.Parallel()
	_, handle := bound(t, "unstaged")
	repair := fault(t, faults.Fault{Method: "NodeStageVolume", Volume: handle, Code: codes.Internal,
		Message: "bad superblock"})
	pod(t, "unstaged", "unstaged", nodeA)
	s := stuck{kind: "pod", name: "unstaged", admin: verdict{"HWS707", "HWS707", []string{"HWS708"}}}
	s.explained(t)
	repair()
	runs(t, s.name)
	s.fine(t)
}

func TestANodeWithAsManyVolumesAsItCanTake(t *testing.T) {
	t.Parallel()
	bound(t, "full-1")
	bound(t, "full-2")
	first := pod(t, "full-1", "full-1", nodeFull)
	runs(t, first.Name)
	pod(t, "full-2", "full-2", nodeFull)
	s := stuck{kind: "pod", name: "full-2", admin: verdict{"HWS604", "HWS604", nil}}
	s.explained(t)
	remove(t, first)
	runs(t, s.name)
	s.fine(t)
}

func TestAClaimThatIsDeletedInUse(t *testing.T) {
	t.Parallel()
	c, _ := bound(t, "inuse")
	user := pod(t, "inuse", "inuse", nodeA)
	runs(t, user.Name)
	remove(t, c)
	s := stuck{kind: "pvc", name: "inuse", admin: verdict{"HWS626", "HWS626", nil}}
	s.explained(t)
	remove(t, user)
	if _, err := sys.AwaitClaim(limited(t), namespace, c.Name,
		func(c *corev1.PersistentVolumeClaim) bool { return c == nil }); err != nil {
		t.Fatal(err)
	}
}

// TestAnExpansionThatFails uses xfs: to grow a mounted ext4, the kernel requires a capability that root does not have
// on every machine.
func TestAnExpansionThatFails(t *testing.T) {
	t.Parallel()
	c, handle := becomesBound(t, sized(t, "grows", xfsClass, "512Mi"))
	pod(t, "grows", "grows", nodeA)
	runs(t, "grows")
	repair := fault(t, faults.Fault{Method: "ControllerExpandVolume", Volume: handle, Code: codes.ResourceExhausted,
		Message: "the pool is full"})
	resize(t, c, "640Mi")
	s := stuck{kind: "pvc", name: "grows", admin: verdict{"HWS932", "HWS932", nil}}
	s.explained(t)
	repair()
	if _, err := sys.AwaitClaim(limited(t), namespace, c.Name, func(c *corev1.PersistentVolumeClaim) bool {
		return c.Status.Capacity.Storage().Equal(resource.MustParse("640Mi"))
	}); err != nil {
		t.Fatal(err)
	}
	s.fine(t)
}

func resize(t *testing.T, c *corev1.PersistentVolumeClaim, size string) {
	t.Helper()
	patch := client.RawPatch(types.MergePatchType,
		[]byte(`{"spec":{"resources":{"requests":{"storage":"`+size+`"}}}}`))
	if err := sys.Client.Patch(t.Context(), c.DeepCopy(), patch); err != nil {
		t.Fatal(err)
	}
}

func TestADriverThatIsNotOnTheNodeOfThePod(t *testing.T) {
	bound(t, "bare")
	again := stopped(t, system.NodeDriver(nodeBare))
	t.Parallel()
	onNode(t, "bare", nodeBare)
	s := stuck{kind: "pod", name: "bare", admin: verdict{"HWS209", "HWS209", []string{"HWS708"}}}
	s.explained(t)
	again()
	runs(t, s.name)
	s.fine(t)
}

func TestANodeThatIsDead(t *testing.T) {
	bound(t, "dead")
	runsOn := pod(t, "dead-1", "dead", nodeDead)
	runs(t, runsOn.Name)
	if err := sys.Kill(system.Machine(nodeDead)); err != nil {
		t.Fatal(err)
	}
	t.Parallel()
	pod(t, "dead-2", "dead", nodeB)
	s := stuck{kind: "pod", name: "dead-2",
		admin:  verdict{"HWS419", "HWS419", []string{"HWS701", "HWS708", "HWS710", "HWS713"}},
		reader: verdict{"HWS701", "HWS701", []string{"HWS708"}}}
	cause := s.explained(t)
	obey(t, cause, "kubectl taint node "+nodeDead)
	runs(t, s.name)
	s.fine(t)
}
