/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package alerts

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

func size(s string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(s)}
}

func newClaim(name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: ptr.To(class), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: size("32Mi")},
		},
	}
}

// block makes the volume of a claim a raw device, which grows without the rights that a mounted filesystem needs.
func block(claim *corev1.PersistentVolumeClaim) {
	claim.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock)
}

// claim creates a claim, waits until it is bound and returns the handle of its volume.
func (s *suite) claim(ctx context.Context, name string, change ...func(*corev1.PersistentVolumeClaim)) (string, error) {
	claim := newClaim(name)
	for _, c := range change {
		c(claim)
	}
	if err := s.Client.Create(ctx, claim); err != nil {
		return "", err
	}
	bound, err := s.AwaitClaim(ctx, namespace, name, func(c *corev1.PersistentVolumeClaim) bool {
		return c != nil && c.Status.Phase == corev1.ClaimBound
	})
	if err != nil {
		return "", err
	}
	pv := &corev1.PersistentVolume{}
	if err := s.Client.Get(ctx, client.ObjectKey{Name: bound.Spec.VolumeName}, pv); err != nil {
		return "", err
	}
	return pv.Spec.CSI.VolumeHandle, nil
}

func (s *suite) intent(ctx context.Context, name, claim, node string) error {
	return s.Client.Create(ctx, &volumesv1alpha1.VolumeAttachmentIntent{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: volumesv1alpha1.VolumeAttachmentIntentSpec{NodeName: node, Volume: volumesv1alpha1.VolumeSource{
			PersistentVolumeClaim: &volumesv1alpha1.PersistentVolumeClaimSource{ClaimName: claim}}},
	})
}

// static creates a PersistentVolume that no provisioner made, the claim that is bound to it, and an intent on node a,
// all of one name.
func (s *suite) static(ctx context.Context, name string, change func(*corev1.PersistentVolume)) error {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
		Capacity: size("1Mi"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
		PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
		ClaimRef:                      &corev1.ObjectReference{Namespace: namespace, Name: name}}}
	change(pv)
	claim := newClaim(name)
	claim.Spec.StorageClassName, claim.Spec.VolumeName = ptr.To(""), name
	claim.Spec.AccessModes = pv.Spec.AccessModes
	claim.Spec.Resources.Requests = size("1Mi")
	return errors.Join(s.Client.Create(ctx, pv), s.Client.Create(ctx, claim), s.intent(ctx, name, name, nodeA))
}

// published creates a claim and an intent of the same name, and waits until the volume is published.
func (s *suite) published(ctx context.Context, name, node string) (string, error) {
	handle, err := s.claim(ctx, name)
	if err != nil {
		return "", err
	}
	if err := s.intent(ctx, name, name, node); err != nil {
		return "", err
	}
	_, err = s.AwaitReady(ctx, namespace, name)
	return handle, err
}

// deleteIntents deletes intents and waits until they are gone.
func (s *suite) deleteIntents(ctx context.Context, all ...string) error {
	for _, name := range all {
		if err := s.Client.Delete(ctx, &volumesv1alpha1.VolumeAttachmentIntent{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}); err != nil {
			return err
		}
	}
	for _, name := range all {
		if err := s.AwaitGone(ctx, namespace, name); err != nil {
			return err
		}
	}
	return nil
}

// inline is the inline volume of a pod.
func inline(attribute, value string) corev1.VolumeSource {
	return corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: volumesv1alpha1.InlineDriver,
		VolumeAttributes: map[string]string{attribute: value}}}
}

// podVolumes are two volumes that a pod has as inline volumes: one without free bytes, one without free inodes. The
// test takes the part of the kubelet.
type podVolumes struct {
	*suite
	files []string
}

func (p *podVolumes) fault() fault {
	return fault{
		name: "full volumes of a pod", make: p.fill, repair: p.empty, situation: "Full volume", intent: "bytes",
		alerts: map[string]map[string]string{
			"HawserVolumeFillingUp/critical":     {"namespace": namespace, "persistentvolumeclaim": "bytes"},
			"HawserVolumeFillingUp/warning":      {"namespace": namespace, "persistentvolumeclaim": "bytes"},
			"HawserInodesRunningOut/critical":    {"namespace": namespace, "persistentvolumeclaim": "inodes"},
			"HawserPublishedVolumeFull/critical": {"node": nodeA},
		},
	}
}

func (p *podVolumes) fill(ctx context.Context) error {
	for _, name := range []string{"bytes", "inodes"} {
		if _, err := p.published(ctx, name, nodeA); err != nil {
			return err
		}
		if err := p.bind(ctx, name); err != nil {
			return err
		}
	}
	// The trend of the bytes begins with what Prometheus has seen before the volume is full.
	if err := p.awaitSample(ctx, `hawser_volume_stats_available_bytes{persistentvolumeclaim="bytes"}`); err != nil {
		return err
	}
	large := filepath.Join(p.PublishedPath(nodeA, namespace, "bytes"), "large")
	p.files = append(p.files, large)
	if err := fillFile(large); err != nil {
		return err
	}
	for i := 0; ; i++ {
		small := filepath.Join(p.PublishedPath(nodeA, namespace, "inodes"), fmt.Sprintf("small-%d", i))
		file, err := os.Create(small)
		if errors.Is(err, syscall.ENOSPC) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("using up the inodes: %w", err)
		}
		p.files = append(p.files, small)
		if err := file.Close(); err != nil {
			return fmt.Errorf("using up the inodes: %w", err)
		}
	}
}

// fillFile writes until nothing is free.
func fillFile(name string) error {
	file, err := os.Create(name)
	if err != nil {
		return fmt.Errorf("filling a volume: %w", err)
	}
	for err == nil {
		_, err = file.Write(make([]byte, 1<<20))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		err = errors.Join(err, file.Close())
		return fmt.Errorf("filling a volume: %w", err)
	}
	return file.Close()
}

func (p *podVolumes) empty(ctx context.Context) error {
	for _, name := range p.files {
		if err := os.Remove(name); err != nil {
			return fmt.Errorf("emptying a volume: %w", err)
		}
	}
	return p.unbind(ctx)
}

// unbind ends the pods.
func (p *podVolumes) unbind(ctx context.Context) error {
	plugin, done, err := p.plugin()
	if err != nil {
		return err
	}
	defer done()
	for _, name := range []string{"bytes", "inodes"} {
		if _, err := plugin.NodeUnpublishVolume(ctx,
			&csi.NodeUnpublishVolumeRequest{VolumeId: "csi-" + name, TargetPath: p.target(name)}); err != nil {
			return fmt.Errorf("unpublishing the inline volume of pod %s: %w", name, err)
		}
	}
	return nil
}

func (p *podVolumes) target(name string) string {
	return filepath.Join(p.KubeletDir(nodeA), "pods", name+"-uid", "volumes", "kubernetes.io~csi", "data", "mount")
}

// plugin is the CSI node plugin of the agent.
func (p *podVolumes) plugin() (csi.NodeClient, func(), error) {
	socket := filepath.Join(p.KubeletDir(nodeA), "plugins", volumesv1alpha1.InlineDriver, "csi.sock")
	connection, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, nil, fmt.Errorf("dialing the plugin of the agent: %w", err)
	}
	return csi.NewNodeClient(connection), func() { _ = connection.Close() }, nil
}

// bind gives a pod the volume of the intent of that name, as a kubelet does.
func (p *podVolumes) bind(ctx context.Context, name string) error {
	dir := filepath.Dir(p.target(name))
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("making the directory of pod %s: %w", name, err)
	}
	data := fmt.Sprintf(`{"driverName":%q,"volumeHandle":"csi-%s","volumeLifecycleMode":"Ephemeral"}`,
		volumesv1alpha1.InlineDriver, name)
	if err := os.WriteFile(filepath.Join(dir, "vol_data.json"), []byte(data), 0o600); err != nil {
		return fmt.Errorf("writing the record of pod %s: %w", name, err)
	}
	plugin, done, err := p.plugin()
	if err != nil {
		return err
	}
	defer done()
	_, err = plugin.NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{
		VolumeId: "csi-" + name, TargetPath: p.target(name),
		VolumeContext: map[string]string{
			"csi.storage.k8s.io/pod.name": name, "csi.storage.k8s.io/pod.namespace": namespace,
			"csi.storage.k8s.io/pod.uid": name + "-uid", "csi.storage.k8s.io/ephemeral": "true",
			"csi.storage.k8s.io/serviceAccount.name": "default", "intent": name,
		},
		VolumeCapability: &csi.VolumeCapability{
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		},
	})
	if err != nil {
		return fmt.Errorf("publishing the inline volume of pod %s: %w", name, err)
	}
	return nil
}
