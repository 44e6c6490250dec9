/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package alerts

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/system"
)

// orphan: the finalizer of an intent is cut off while no agent sees it.
func (s *suite) orphan() fault {
	return fault{
		name: "an intent that was removed without its finalizer",
		make: func(ctx context.Context) error {
			if _, err := s.published(ctx, "orphan", nodeA); err != nil {
				return err
			}
			if err := s.StopProcess(ctx, system.Agent(nodeA)); err != nil {
				return err
			}
			_, err := s.Kubectl(ctx, "delete", "vai", "orphan", "-n", namespace, "--wait=false")
			if err == nil {
				_, err = s.Kubectl(ctx, "patch", "vai", "orphan", "-n", namespace, "--type=merge", "-p",
					`{"metadata":{"finalizers":null}}`)
			}
			return errors.Join(err, s.AwaitGone(ctx, namespace, "orphan"), s.StartAgain(ctx, system.Agent(nodeA)))
		},
		repair: func(ctx context.Context) error {
			if err := s.intent(ctx, "orphan", "orphan", nodeA); err != nil {
				return err
			}
			_, err := s.AwaitReady(ctx, namespace, "orphan")
			return errors.Join(err, s.deleteIntents(ctx, "orphan"))
		},
		alerts: map[string]map[string]string{
			"HawserOrphanedVolumes/warning":    {"node": nodeA},
			"HawserMountsInconsistent/warning": {"node": nodeA},
		},
	}
}

// deadAgent: what is attached to its node is declared released, first of a driver that cuts the access of the node,
// then of one that does not.
func (s *suite) deadAgent() fault {
	volumes := []string{"cut", "uncut"}
	return fault{
		name: "an agent that is dead, and forced detaches from its node", situation: "Agent dead", intent: "left",
		make: func(ctx context.Context) error {
			for _, name := range append(volumes, "left") {
				if _, err := s.published(ctx, name, nodeB); err != nil {
					return err
				}
			}
			if err := s.Kill(system.Agent(nodeB)); err != nil {
				return err
			}
			for _, name := range volumes {
				if err := s.forcedDetach(ctx, name, name == "cut"); err != nil {
					return err
				}
			}
			return nil
		},
		repair: func(ctx context.Context) error {
			if err := s.StartAgain(ctx, system.Agent(nodeB)); err != nil {
				return err
			}
			for _, name := range volumes {
				if err := s.AwaitGone(ctx, namespace, name); err != nil {
					return err
				}
			}
			_, err := s.AwaitReady(ctx, namespace, "left")
			return errors.Join(err, s.deleteIntents(ctx, "left"))
		},
		alerts: map[string]map[string]string{
			"HawserNodeVolumesUnknown/warning": {"node": nodeB},
			"HawserAgentMissing/warning":       {"node": nodeB},
		},
	}
}

// outOfService: the taint is left on a node that runs.
func (s *suite) outOfService() fault {
	return fault{
		name: "the out-of-service taint of a node that runs",
		make: func(ctx context.Context) error {
			_, err := s.Kubectl(ctx, "taint", "node", nodeA, corev1.TaintNodeOutOfService+"=left:NoSchedule")
			return err
		},
		repair: func(ctx context.Context) error {
			_, err := s.Kubectl(ctx, "taint", "node", nodeA, corev1.TaintNodeOutOfService+"-")
			return err
		},
		alerts: map[string]map[string]string{"HawserOutOfServiceNodeRuns/warning": {"node": nodeA}},
	}
}

// anotherMachine: a machine that is cut off goes on under the name of the one that comes in its place, and then takes
// the name back.
func (s *suite) anotherMachine() fault {
	const name = "of-another"
	change := func(ctx context.Context, machine string, disk func(node, machine string) error) error {
		return errors.Join(s.StopProcess(ctx, system.Agent(nodeB)), disk(nodeB, nodeB), s.Identify(nodeB, machine),
			s.StartAgain(ctx, system.Agent(nodeB)))
	}
	return fault{
		name: "a machine that was replaced while it used a volume",
		make: func(ctx context.Context) error {
			if _, err := s.published(ctx, name, nodeB); err != nil {
				return err
			}
			return change(ctx, "another", s.SetAside)
		},
		repair: func(ctx context.Context) error {
			return errors.Join(change(ctx, nodeB, s.BringBack), s.deleteIntents(ctx, name))
		},
		alerts: map[string]map[string]string{"HawserAnotherMachine/warning": {"node": nodeB}},
	}
}

// forcedDetach declares the volume of an intent released while its driver cuts the access of the node, or does not.
func (s *suite) forcedDetach(ctx context.Context, name string, cut bool) error {
	if _, err := s.Kubectl(ctx, "delete", "vai", name, "-n", namespace, "--wait=false"); err != nil {
		return err
	}
	if err := s.promiseCut(ctx, cut); err != nil {
		return err
	}
	if err := s.declareReleased(ctx, name); err != nil {
		return err
	}
	alert := "HawserUnprotectedDetach/critical"
	if cut {
		alert = "HawserForcedDetach/warning"
	}
	return s.receiver.Await(ctx, alert+" fires",
		Labelled(alert, labels{"evidence": string(volumesv1alpha1.EvidenceDeclaredByAdministrator)}))
}

// promiseCut sets or removes the promise of the driver.
func (s *suite) promiseCut(ctx context.Context, cut bool) error {
	value := "-"
	if cut {
		value = "=true"
	}
	_, err := s.Kubectl(ctx, "annotate", "csidriver", system.DriverName, "--overwrite",
		volumesv1alpha1.CutsAccessAnnotation+value)
	return err
}

// declareReleased declares the attachment of the claim's volume to node b.
func (s *suite) declareReleased(ctx context.Context, claim string) error {
	pvc := &corev1.PersistentVolumeClaim{}
	if err := s.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: claim}, pvc); err != nil {
		return err
	}
	nvs := &volumesv1alpha1.NodeVolumeState{}
	if err := s.Client.Get(ctx, client.ObjectKey{Name: nodeB}, nvs); err != nil {
		return err
	}
	for _, e := range nvs.Spec.Attachments {
		if e.PersistentVolumeName == pvc.Spec.VolumeName {
			_, err := s.Kubectl(ctx, "annotate", "nvs", nodeB,
				volumesv1alpha1.DeclaredReleasedPrefix+string(e.AttachmentUID)+"=the machine is off")
			return err
		}
	}
	return fmt.Errorf("claim %s has no entry on %s: %+v", claim, nodeB, nvs.Spec.Attachments)
}

// missingDriver: other volumes of the driver are attached to the node, and one more is wanted there.
func (s *suite) missingDriver() fault {
	const name = "without-driver"
	return fault{
		name: "a node plugin that does not run", situation: "Driver missing", intent: name,
		make: func(ctx context.Context) error {
			if _, err := s.claim(ctx, name); err != nil {
				return err
			}
			return errors.Join(s.StopProcess(ctx, system.NodeDriver(nodeA)), s.intent(ctx, name, name, nodeA))
		},
		repair: func(ctx context.Context) error {
			if err := s.StartAgain(ctx, system.NodeDriver(nodeA)); err != nil {
				return err
			}
			_, err := s.AwaitReady(ctx, namespace, name)
			return errors.Join(err, s.deleteIntents(ctx, name))
		},
		alerts: map[string]map[string]string{"HawserDriversNotReady/warning": {"node": nodeA}},
	}
}

// deadAttacher: the controller says so after two minutes.
func (s *suite) deadAttacher() fault {
	const name = "unattached"
	return fault{
		name: "an attacher that does not run", situation: "Attacher dead", intent: name,
		make: func(ctx context.Context) error {
			if _, err := s.claim(ctx, name); err != nil {
				return err
			}
			return errors.Join(s.StopProcess(ctx, system.Attacher), s.intent(ctx, name, name, nodeC))
		},
		repair: func(ctx context.Context) error {
			if err := s.StartAttacher(ctx); err != nil {
				return err
			}
			_, err := s.AwaitReady(ctx, namespace, name)
			return errors.Join(err, s.deleteIntents(ctx, name))
		},
		alerts: map[string]map[string]string{
			"HawserAttachmentsUnhealthy/warning": {"node": nodeC, "reason": volumesv1alpha1.ReasonAttacherSilent}},
	}
}

// unreachableAPI: the agent of node c runs on and reaches the API server through a proxy, which is then away.
func (s *suite) unreachableAPI() fault {
	const name = "cut-off"
	p := &proxy{}
	return fault{
		name: "an agent that does not reach the API server", situation: "Unreachable API", intent: name,
		make: func(ctx context.Context) error {
			if err := s.useProxy(ctx, nodeC, p); err != nil {
				return err
			}
			if _, err := s.published(ctx, name, nodeC); err != nil {
				return err
			}
			p.cut()
			return nil
		},
		repair: func(ctx context.Context) error {
			if err := p.open(ctx); err != nil {
				return err
			}
			_, err := s.AwaitReady(ctx, namespace, name)
			return errors.Join(err, s.deleteIntents(ctx, name))
		},
		alerts: map[string]map[string]string{"HawserNodeVolumesUnknown/warning": {"node": nodeC}},
	}
}

func (s *suite) restartAttacher(ctx context.Context) error {
	if err := s.StopProcess(ctx, system.Attacher); err != nil {
		return err
	}
	return s.StartAttacher(ctx)
}
