/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package alerts

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/explain/catalog"
	"github.com/hawser-io/hawser/internal/install"
	"github.com/hawser-io/hawser/test/csiloop/faults"
	"github.com/hawser-io/hawser/test/system"
)

type labels = map[string]string

func (s *suite) phases() []phase {
	full := &podVolumes{suite: s}
	return []phase{
		{name: "volumes", faults: []fault{
			s.unreachableAPI(), s.noClaim(), s.setWithoutClaim(), s.unboundClaim(), s.wrongNode(), s.unsupportedVolume(),
			s.usedElsewhere(), s.refusedDetach(), s.hungStage(), s.refusedExpansion(), s.gatedPod(), s.foreignMount(),
			full.fault(), s.refusedAttaches(),
		}},
		// The attacher last: what the others attach needs it.
		{name: "nodes", faults: []fault{s.orphan(), s.deadAgent(), s.missingDriver(), s.deadAttacher()}},
		{name: "out of service", faults: []fault{s.outOfService(), s.anotherMachine()}},
		{name: "installation", faults: []fault{s.missingPolicy(), s.refusedRequests(), s.noExporter()}},
		{name: "observer", faults: []fault{s.blindObserver()}},
		{name: "no manager", faults: []fault{s.noManager()}},
		{name: "no leader", faults: []fault{s.noLeader(), s.noObserver()}},
		// The operator repairs what others delete, so it comes last.
		{name: "rollout", faults: []fault{s.stuckRollout()}},
	}
}

func (s *suite) noClaim() fault {
	return fault{
		name:   "an intent for a claim that does not exist",
		make:   func(ctx context.Context) error { return s.intent(ctx, "nowhere", "nowhere", nodeA) },
		repair: func(ctx context.Context) error { return s.deleteIntents(ctx, "nowhere") },
		alerts: map[string]map[string]string{
			"HawserIntentNotReady/warning":  {"namespace": namespace, "intent": "nowhere", "node": nodeA},
			"HawserIntentsWaitLong/warning": {"phase": "resolve"},
		},
	}
}

func (s *suite) setWithoutClaim() fault {
	source := volumesv1alpha1.PersistentVolumeClaimSource{ClaimName: "nowhere"}
	set := &volumesv1alpha1.VolumeAttachmentIntentSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "on-one-node"},
		Spec: volumesv1alpha1.VolumeAttachmentIntentSetSpec{
			NodeSelector: &metav1.LabelSelector{MatchLabels: labels{corev1.LabelHostname: nodeA}},
			Template: volumesv1alpha1.IntentTemplate{Spec: volumesv1alpha1.IntentTemplateSpec{
				Volume: &volumesv1alpha1.TemplateVolumeSource{PersistentVolumeClaim: source}}},
		},
	}
	return fault{
		name: "a set for a claim that does not exist",
		make: func(ctx context.Context) error { return s.Client.Create(ctx, set) },
		repair: func(ctx context.Context) error {
			return s.Client.Delete(ctx, set, client.PropagationPolicy(metav1.DeletePropagationForeground))
		},
		alerts: map[string]map[string]string{
			"HawserIntentSetNotReady/warning": {"namespace": namespace, "intentset": "on-one-node"}},
	}
}

// unboundClaim: its class does not exist.
func (s *suite) unboundClaim() fault {
	const name = "unbound"
	return fault{
		name: "an intent for a claim that is not bound", situation: "Claim unbound", intent: name,
		make: func(ctx context.Context) error {
			claim := newClaim(name)
			claim.Spec.StorageClassName = ptr.To("missing")
			return errors.Join(s.Client.Create(ctx, claim), s.intent(ctx, name, name, nodeA))
		},
		repair: func(ctx context.Context) error {
			// The observer goes on finding a claim that waits.
			return errors.Join(s.deleteIntents(ctx, name), s.Client.Delete(ctx, newClaim(name)))
		},
		alerts: map[string]map[string]string{"HawserIntentNotReady/warning": {"intent": name}},
	}
}

// wrongNode: the volume can be used on node b only.
func (s *suite) wrongNode() fault {
	const name = "bound-to-b"
	return fault{
		name: "an intent on a node that the volume excludes", situation: "Wrong node affinity", intent: name,
		make: func(ctx context.Context) error {
			return s.static(ctx, name, func(pv *corev1.PersistentVolume) {
				pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: system.DriverName, VolumeHandle: name}
				pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
					NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
						{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{nodeB}}}}}}}
			})
		},
		repair: func(ctx context.Context) error { return s.deleteIntents(ctx, name) },
		alerts: map[string]map[string]string{"HawserIntentNotReady/warning": {"intent": name}},
	}
}

func (s *suite) unsupportedVolume() fault {
	const name = "unsupported"
	return fault{
		name: "an intent for a volume that no CSI driver has",
		make: func(ctx context.Context) error {
			return s.static(ctx, name, func(pv *corev1.PersistentVolume) {
				pv.Spec.NFS = &corev1.NFSVolumeSource{Server: "nfs.example.com", Path: "/"}
			})
		},
		repair: func(ctx context.Context) error { return s.deleteIntents(ctx, name) },
		alerts: map[string]map[string]string{"HawserIntentStalled/warning": {"intent": name}},
	}
}

func (s *suite) usedElsewhere() fault {
	return fault{
		name: "an exclusive volume that is wanted on a second node", situation: "Held elsewhere", intent: "shared-too",
		make: func(ctx context.Context) error {
			_, err := s.published(ctx, "shared", nodeA)
			return errors.Join(err, s.intent(ctx, "shared-too", "shared", nodeB))
		},
		repair: func(ctx context.Context) error { return s.deleteIntents(ctx, "shared-too") },
		alerts: map[string]map[string]string{"HawserVolumeInUseElsewhere/warning": {"intent": "shared-too", "node": nodeB}},
	}
}

func (s *suite) refusedDetach() fault {
	id := ""
	return fault{
		name: "a driver that does not detach",
		make: func(ctx context.Context) error {
			handle, err := s.published(ctx, "stuck", nodeA)
			if err != nil {
				return err
			}
			id, err = faults.Add(s.BackingDir(), faults.Fault{Method: "ControllerUnpublishVolume", Volume: handle,
				When: faults.Before, Action: faults.Error, Code: codes.Internal, Message: "the storage is away"})
			return errors.Join(err, s.deleteIntents(ctx, "stuck"))
		},
		// The attacher is started again, because it waits longer and longer between its attempts.
		repair: func(ctx context.Context) error {
			return errors.Join(faults.Remove(s.BackingDir(), id), s.restartAttacher(ctx))
		},
		alerts: map[string]map[string]string{
			"HawserDetachStuck/warning": {"driver": system.DriverName},
			"HawserAttachmentsUnhealthy/warning": {"node": nodeA, "condition": "AttachmentsHealthy",
				"reason": volumesv1alpha1.ReasonDetachFailed},
		},
	}
}

func (s *suite) hungStage() fault {
	id := ""
	return fault{
		name: "a driver that answers no stage before its deadline", situation: "Hung stage", intent: "hanging",
		make: func(ctx context.Context) error {
			handle, err := s.claim(ctx, "hanging")
			if err != nil {
				return err
			}
			id, err = faults.Add(s.BackingDir(), faults.Fault{Method: "NodeStageVolume", Volume: handle,
				When: faults.Before, Action: faults.Hang})
			return errors.Join(err, s.intent(ctx, "hanging", "hanging", nodeA))
		},
		repair: func(ctx context.Context) error {
			if err := faults.Remove(s.BackingDir(), id); err != nil {
				return err
			}
			_, err := s.AwaitReady(ctx, namespace, "hanging")
			return errors.Join(err, s.deleteIntents(ctx, "hanging"))
		},
		alerts: map[string]map[string]string{
			"HawserDriverCallHangs/warning": {"node": nodeA, "driver": system.DriverName}},
	}
}

func (s *suite) refusedExpansion() fault {
	id := ""
	return fault{
		name: "a driver that does not expand",
		make: func(ctx context.Context) error {
			handle, err := s.claim(ctx, "growing", block)
			if err != nil {
				return err
			}
			if err := s.intent(ctx, "growing", "growing", nodeA); err != nil {
				return err
			}
			if _, err := s.AwaitReady(ctx, namespace, "growing"); err != nil {
				return err
			}
			id, err = faults.Add(s.BackingDir(), faults.Fault{Method: "NodeExpandVolume", Volume: handle,
				When: faults.Before, Action: faults.Error, Code: codes.Internal, Message: "not now"})
			if err != nil {
				return err
			}
			_, err = s.Kubectl(ctx, "patch", "pvc", "growing", "-n", namespace, "-p",
				`{"spec":{"resources":{"requests":{"storage":"48Mi"}}}}`)
			return err
		},
		repair: func(ctx context.Context) error {
			return errors.Join(faults.Remove(s.BackingDir(), id), s.deleteIntents(ctx, "growing"))
		},
		alerts: map[string]map[string]string{"HawserExpansionFailed/warning": {"intent": "growing"}},
	}
}

func (s *suite) gatedPod() fault {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "gated"}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "c", Image: "none"}},
		Volumes:    []corev1.Volume{{Name: "data", VolumeSource: inline("claim", "never")}},
	}}
	return fault{
		name:   "a pod with the inline volume of a claim that does not exist",
		make:   func(ctx context.Context) error { return s.Client.Create(ctx, pod) },
		repair: func(ctx context.Context) error { return s.Client.Delete(ctx, pod) },
		alerts: map[string]map[string]string{"HawserPodGatedLong/warning": nil},
	}
}

// foreignMount covers a published path with a filesystem that the agent did not mount there.
func (s *suite) foreignMount() fault {
	const name = "covered"
	path := s.PublishedPath(nodeA, namespace, name)
	return fault{
		name: "a foreign mount over a published path", situation: "Foreign mount", intent: name,
		make: func(ctx context.Context) error {
			if _, err := s.published(ctx, name, nodeA); err != nil {
				return err
			}
			if err := syscall.Mount("foreign", path, "tmpfs", 0, "size=1m"); err != nil {
				return fmt.Errorf("mounting over %s: %w", path, err)
			}
			return nil
		},
		repair: func(ctx context.Context) error {
			if err := syscall.Unmount(path, 0); err != nil {
				return fmt.Errorf("unmounting what covers %s: %w", path, err)
			}
			_, err := s.AwaitReady(ctx, namespace, name)
			return errors.Join(err, s.deleteIntents(ctx, name))
		},
		alerts: map[string]map[string]string{"HawserMountsInconsistent/warning": {"node": nodeA}},
	}
}

// refusedAttaches are three, one after the other: between the attempts for one volume the attacher waits longer than
// the window of the alert.
func (s *suite) refusedAttaches() fault {
	var ids, intents []string
	return fault{
		name: "a driver that does not attach",
		make: func(ctx context.Context) error {
			for _, name := range []string{"refused-1", "refused-2", "refused-3"} {
				handle, err := s.claim(ctx, name)
				if err != nil {
					return err
				}
				id, err := faults.Add(s.BackingDir(), faults.Fault{Method: "ControllerPublishVolume", Volume: handle,
					When: faults.Before, Action: faults.Error, Code: codes.Internal, Message: "the storage is away"})
				if err != nil {
					return err
				}
				ids, intents = append(ids, id), append(intents, name)
				if err := s.intent(ctx, name, name, nodeA); err != nil {
					return err
				}
				if err := faults.WaitHits(ctx, s.BackingDir(), id, 3); err != nil {
					return err
				}
			}
			return nil
		},
		repair: func(ctx context.Context) error {
			for _, id := range ids {
				if err := faults.Remove(s.BackingDir(), id); err != nil {
					return err
				}
			}
			return s.deleteIntents(ctx, intents...)
		},
		alerts: map[string]map[string]string{
			"HawserAttachFailing/warning": {"volume_plugin": "kubernetes.io/csi:" + system.DriverName}},
	}
}

func (s *suite) missingPolicy() fault {
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: system.Name("hawser-hold")}}
	return s.removed("an admission policy that is not bound", binding,
		map[string]map[string]string{
			"HawserPoliciesNotInForce/critical": nil,
			"HawserDangerFound/critical":        {"reason": volumesv1alpha1.ReasonAdmissionPolicyMissing},
		})
}

// refusedRequests: the agents renew their Leases under this role.
func (s *suite) refusedRequests() fault {
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: install.Namespace(), Name: system.Name("hawser-agent")}}
	return s.removed("agents that may not renew their Leases", binding,
		map[string]map[string]string{"HawserRequestsRefused/warning": {"component": "agent"}})
}

// removed is an object that is deleted and created again.
func (s *suite) removed(name string, object client.Object, alerts map[string]map[string]string) fault {
	return fault{
		name: name,
		make: func(ctx context.Context) error {
			if err := s.Client.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
				return err
			}
			return s.Client.Delete(ctx, object)
		},
		repair: func(ctx context.Context) error {
			object.SetResourceVersion("")
			object.SetUID("")
			object.SetManagedFields(nil)
			return s.Client.Create(ctx, object)
		},
		alerts: alerts,
	}
}

func (s *suite) noExporter() fault {
	return fault{
		name:   "no kube-state-metrics",
		make:   func(ctx context.Context) error { return s.StopProcess(ctx, kubeStateMetrics) },
		repair: s.startExporter,
		alerts: map[string]map[string]string{"HawserMetricsAbsent/warning": {"source": kubeStateMetrics}},
	}
}

// noManager: the last one that led ended long ago.
func (s *suite) noManager() fault {
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: install.Namespace(), Name: "hawser-manager"},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("earlier"), LeaseDurationSeconds: ptr.To[int32](15),
			RenewTime: ptr.To(metav1.NewMicroTime(time.Now().Add(-time.Hour)))},
	}
	return fault{
		name: "no manager",
		make: func(ctx context.Context) error {
			return errors.Join(s.Client.Create(ctx, lease), s.StopProcess(ctx, system.Manager))
		},
		repair: func(ctx context.Context) error {
			return errors.Join(s.Client.Delete(ctx, lease), s.StartAgain(ctx, system.Manager))
		},
		alerts: map[string]map[string]string{
			"HawserManagerDown/critical": nil,
			"HawserOutageFound/warning":  {"reason": catalog.ManagerSilent},
		},
	}
}

// noLeader: another process has the Lease of the leader, and does nothing.
func (s *suite) noLeader() fault {
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: install.Namespace(), Name: "hawser-manager"},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("nobody"), LeaseDurationSeconds: ptr.To[int32](3600),
			RenewTime: ptr.To(metav1.NowMicro())},
	}
	return fault{
		name: "a manager that does not lead",
		make: func(ctx context.Context) error {
			lease.Spec.RenewTime = ptr.To(metav1.NowMicro())
			return errors.Join(s.Client.Create(ctx, lease), s.SetManagerArgs(ctx, "--leader-elect=true",
				"--metrics-bind-address="+s.addresses[manager]))
		},
		repair: func(ctx context.Context) error { return s.Client.Delete(ctx, lease) },
		alerts: map[string]map[string]string{"HawserNoLeader/critical": nil},
	}
}
