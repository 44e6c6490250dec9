/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package manager

import (
	"os"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/test/apiserver"
)

const (
	driverName = "stub.csi.hawser.io"
	// patience with what has to come about. Nothing that passes waits for its end; a busy machine is slow.
	patience = 90 * time.Second
)

// world is one control plane with everything of the cluster that Hawser does not bring along.
type world struct {
	config   *rest.Config
	client   client.WithWatch
	attacher *attacher
}

func TestMain(m *testing.M) { os.Exit(apiserver.Main(m)) }

func newWorld(t *testing.T) *world {
	// Most of a test is waiting, and each has a control plane for itself.
	t.Parallel()
	return newWorldAlone(t)
}

// newWorldAlone is for a test that reads what all managers of a process share: nothing runs beside it.
func newWorldAlone(t *testing.T) *world {
	cfg, c := apiserver.Borrow(t)
	w := &world{config: cfg, client: c}
	w.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: volumesv1alpha1.InstallNamespace}})
	w.attacher = startAttacher(t, c)
	return w
}

func (w *world) create(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		if err := w.client.Create(t.Context(), o); err != nil {
			t.Fatalf("creating %T %s: %v", o, o.GetName(), err)
		}
	}
}

func (w *world) delete(t *testing.T, o client.Object) {
	t.Helper()
	if err := w.client.Delete(t.Context(), o); err != nil {
		t.Fatalf("deleting %T %s: %v", o, o.GetName(), err)
	}
}

// node makes a Node with the driver on it, and an agent.
func (w *world) node(t *testing.T, name string) *agent {
	t.Helper()
	w.bareNode(t, name)
	return w.agent(t, name)
}

func (w *world) bareNode(t *testing.T, name string) {
	t.Helper()
	w.create(t,
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}},
		csiNode(name),
	)
	ready := client.RawPatch(types.StrategicMergePatchType,
		[]byte(`{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`))
	if err := w.client.Status().Patch(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}},
		ready); err != nil {
		t.Fatal(err)
	}
}

func csiNode(name string) *storagev1.CSINode {
	return &storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: driverName, NodeID: name}}},
	}
}

type volumeOptions struct {
	modes    []corev1.PersistentVolumeAccessMode
	mode     corev1.PersistentVolumeMode
	affinity string
}

func newClaim(name string, o volumeOptions) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: o.accessModes(), VolumeMode: o.volumeMode(), StorageClassName: ptr.To(""),
			Resources: corev1.VolumeResourceRequirements{Requests: capacity("1Gi")},
		},
	}
}

func (o volumeOptions) accessModes() []corev1.PersistentVolumeAccessMode {
	if o.modes == nil {
		return []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	}
	return o.modes
}

func (o volumeOptions) volumeMode() *corev1.PersistentVolumeMode {
	if o.mode == "" {
		return ptr.To(corev1.PersistentVolumeFilesystem)
	}
	return &o.mode
}

func capacity(q string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(q)}
}

func newVolume(claim *corev1.PersistentVolumeClaim, o volumeOptions) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv-" + claim.Name},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes: o.accessModes(), VolumeMode: o.volumeMode(), Capacity: capacity("1Gi"),
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: driverName, VolumeHandle: "vol-" + claim.Name, FSType: "ext4",
			}},
			ClaimRef: &corev1.ObjectReference{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID},
		},
	}
	if o.affinity != "" {
		terms := []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{o.affinity}},
		}}}
		pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: terms}}
	}
	return pv
}

// bind does what the PersistentVolume controller does for a claim and its volume.
func (w *world) bind(t *testing.T, claim *corev1.PersistentVolumeClaim) {
	t.Helper()
	w.change(t, claim, func() {
		claim.Spec.VolumeName = "pv-" + claim.Name
		// Nothing here would remove Kubernetes' own protection again.
		claim.Finalizers = slices.DeleteFunc(claim.Finalizers, func(f string) bool {
			return f == "kubernetes.io/pvc-protection"
		})
	})
	w.phase(t, claim, corev1.ClaimBound)
}

func (w *world) phase(t *testing.T, claim *corev1.PersistentVolumeClaim, phase corev1.PersistentVolumeClaimPhase) {
	t.Helper()
	w.changeStatus(t, claim, func() {
		claim.Status.Phase, claim.Status.Capacity, claim.Status.AccessModes = phase, capacity("1Gi"), claim.Spec.AccessModes
	})
}

// change reads an object, changes and updates it until no other writer was first.
func (w *world) change(t *testing.T, o client.Object, change func()) {
	t.Helper()
	w.retry(t, o, change, func() error { return w.client.Update(t.Context(), o) })
}

func (w *world) changeStatus(t *testing.T, o client.Object, change func()) {
	t.Helper()
	w.retry(t, o, change, func() error { return w.client.Status().Update(t.Context(), o) })
}

func (w *world) retry(t *testing.T, o client.Object, change func(), write func() error) {
	t.Helper()
	for {
		if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			t.Fatalf("reading %T %s: %v", o, o.GetName(), err)
		}
		change()
		err := write()
		if apierrors.IsConflict(err) {
			continue
		}
		if err != nil {
			t.Fatalf("changing %T %s: %v", o, o.GetName(), err)
		}
		return
	}
}

// volume makes a claim that is bound to a volume.
func (w *world) volume(t *testing.T, name string, o volumeOptions) *corev1.PersistentVolumeClaim {
	t.Helper()
	claim := newClaim(name, o)
	w.create(t, claim)
	w.create(t, newVolume(claim, o))
	w.bind(t, claim)
	return claim
}

func newIntent(name, node, claim string) *volumesv1alpha1.VolumeAttachmentIntent {
	return &volumesv1alpha1.VolumeAttachmentIntent{
		// The finalizer is what the admission policy sets on an intent whose volume is to be published.
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, Finalizers: []string{volumesv1alpha1.ReleaseFinalizer},
		},
		Spec: volumesv1alpha1.VolumeAttachmentIntentSpec{
			NodeName: node,
			Volume: volumesv1alpha1.VolumeSource{
				PersistentVolumeClaim: &volumesv1alpha1.PersistentVolumeClaimSource{ClaimName: claim},
			},
		},
	}
}

// intent creates an intent.
func (w *world) intent(t *testing.T, name, node, claim string) *volumesv1alpha1.VolumeAttachmentIntent {
	t.Helper()
	intent := newIntent(name, node, claim)
	w.create(t, intent)
	return intent
}

func uniqueName(claim string) string { return volume.UniqueName(driverName, "vol-"+claim) }

func attachmentOf(claim, node string) *storagev1.VolumeAttachment {
	return &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: volume.AttachmentName(driverName, "vol-"+claim, node)},
	}
}

func stateOf(node string) *volumesv1alpha1.NodeVolumeState {
	return &volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{Name: node}}
}
