/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/explain"
	"github.com/hawser-io/hawser/test/csiloop/faults"
	"github.com/hawser-io/hawser/test/system"
)

// situation is an intent that waits, and what kubectl hawser why then advises.
type situation struct {
	// code of the cause.
	code string
	// comes brings the situation about.
	comes func(v *volume) (intent, conditionType, reason string)
	// way is part of the advice, and act does what it means; both are left out where a printed command is run.
	way string
	act func(v *volume)
	// goes: the advice is to delete the intent, which then goes.
	goes bool
}

// follow waits for the situation, does what is advised, and waits until the intent has ended its wait.
func (s situation) follow(v *volume) {
	v.t.Helper()
	name, conditionType, reason := s.comes(v)
	v.await(name, system.HasReason(conditionType, reason))
	advice := v.advice(name)
	if advice.Code != s.code {
		v.t.Fatalf("kubectl hawser why intent %s: %+v, want %s", name, advice, s.code)
	}
	if s.act != nil {
		if s.way == "" || !strings.Contains(advice.Way, s.way) {
			v.t.Errorf("the advice is %q, want %q in it, which the test does", advice.Way, s.way)
		}
		s.act(v)
	} else {
		v.runPrinted(advice.Run)
	}
	if s.goes {
		v.await(name, func(i *volumesv1alpha1.VolumeAttachmentIntent) bool { return i == nil })
		return
	}
	v.ready(name)
}

// advice is the first finding about an intent.
func (v *volume) advice(name string) explain.Finding {
	v.t.Helper()
	_, output := plugin(limited(v.t), "why", "intent", name, "--output=json")
	var answer struct{ Reports []explain.Report }
	if err := json.Unmarshal([]byte(output), &answer); err != nil || len(answer.Reports[0].Findings) == 0 {
		v.t.Fatalf("kubectl hawser why intent %s: error %v, want a finding: %s", name, err, output)
	}
	return answer.Reports[0].Findings[0]
}

// runPrinted runs the printed command that changes something.
func (v *volume) runPrinted(commands []string) {
	v.t.Helper()
	for _, command := range commands {
		words := strings.Fields(command)
		if words[0] != "kubectl" || words[1] != "delete" {
			continue
		}
		if _, err := sys.Kubectl(limited(v.t), append(words[1:], "--wait=false")...); err != nil {
			v.t.Fatal(err)
		}
		return
	}
	v.t.Fatalf("commands %q, want one that changes something", commands)
}

// repaired is a situation in which the driver refuses a call for as long as it has a fault.
func repaired(code, method, conditionType, reason string) situation {
	return situation{code: code,
		comes: func(v *volume) (string, string, string) {
			v.what = v.fault(faults.Fault{Method: method, Action: faults.Error, Code: codes.Internal, Message: "it broke"})
			return v.intent(nodeA), conditionType, reason
		},
		way: "error", act: func(v *volume) { v.removeFault(v.what) },
	}
}

// createAgain deletes the claim although it is used, and creates another one of its name.
func (v *volume) createAgain() {
	v.t.Helper()
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v.name}}
	must(v.t, sys.Client.Delete(limited(v.t), claim))
	must(v.t, sys.Client.Patch(limited(v.t), claim, client.RawPatch(types.MergePatchType,
		[]byte(`{"metadata":{"finalizers":null}}`))))
	if _, err := sys.AwaitClaim(limited(v.t), namespace, v.name,
		func(c *corev1.PersistentVolumeClaim) bool { return c == nil }); err != nil {
		v.t.Fatal(err)
	}
	newClaim(limited(v.t), v.t, func(pvc *corev1.PersistentVolumeClaim) { pvc.GenerateName, pvc.Name = "", v.name })
}

func TestTheAdviceOfThePluginEndsTheWait(t *testing.T) {
	attached, ready := volumesv1alpha1.ConditionAttached, volumesv1alpha1.ConditionReady
	resolved := volumesv1alpha1.ConditionResolved
	for name, s := range map[string]situation{
		"a claim that does not exist": {code: "HWS101", way: "Create the claim",
			comes: func(v *volume) (string, string, string) {
				v.current = v.name + "-other"
				other := &volume{t: v.t, name: v.current}
				v.t.Cleanup(other.remove)
				return v.intent(nodeA, func(i *volumesv1alpha1.VolumeAttachmentIntent) {
					i.Spec.Volume.PersistentVolumeClaim.ClaimName = v.current
				}), resolved, volumesv1alpha1.ReasonClaimNotFound
			},
			act: func(v *volume) {
				newClaim(limited(v.t), v.t, func(pvc *corev1.PersistentVolumeClaim) { pvc.GenerateName, pvc.Name = "", v.current })
			}},
		"a class that does not exist": {code: "HWS622", way: "Create it",
			comes: func(v *volume) (string, string, string) {
				other := newClaim(limited(v.t), v.t, func(pvc *corev1.PersistentVolumeClaim) {
					pvc.Spec.StorageClassName = ptr.To("late")
				})
				v.t.Cleanup(other.remove)
				return other.intent(nodeA), resolved, volumesv1alpha1.ReasonClaimNotBound
			},
			act: func(v *volume) {
				late := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "late"}, Provisioner: system.DriverName}
				must(v.t, sys.Client.Create(limited(v.t), late))
			}},
		"a node that does not exist": {code: "HWS117", way: "Correct the name", goes: true,
			comes: func(v *volume) (string, string, string) {
				v.current = v.intent("node-z")
				return v.current, resolved, volumesv1alpha1.ReasonNodeNotFound
			},
			act: func(v *volume) { v.drop() }},
		"a volume that another node has": {code: "HWS206", way: "Delete the intent",
			comes: func(v *volume) (string, string, string) {
				v.current = v.intent(nodeA)
				v.ready(v.current)
				return v.intent(nodeB), attached, volumesv1alpha1.ReasonVolumeInUse
			},
			act: func(v *volume) { v.drop() }},
		"a claim that is created again": {code: "HWS106", goes: true,
			comes: func(v *volume) (string, string, string) {
				v.fault(faults.Fault{Method: "ControllerPublishVolume", Action: faults.Error, Code: codes.Internal,
					Message: "it broke"})
				name := v.intent(nodeA)
				v.await(name, system.HasReason(attached, volumesv1alpha1.ReasonAttachFailed))
				v.createAgain()
				return name, resolved, volumesv1alpha1.ReasonClaimReplaced
			}},
		"an attach that fails": repaired("HWS202", "ControllerPublishVolume", attached, volumesv1alpha1.ReasonAttachFailed),
		"a stage that fails":   repaired("HWS306", "NodeStageVolume", ready, volumesv1alpha1.ReasonStageFailed),
		"a publish that fails": repaired("HWS307", "NodePublishVolume", ready, volumesv1alpha1.ReasonPublishFailed),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s.follow(newVolume(t))
		})
	}
}
