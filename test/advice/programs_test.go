/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package advice

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hawser-io/hawser/internal/controller/exclusive"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/install"
	"github.com/hawser-io/hawser/test/system"
)

// serial plays situations of the whole cluster, one after another and before all others.
func serial(t *testing.T, name string, s situation) {
	t.Helper()
	t.Run(name, func(t *testing.T) { s.play(newStory(t)) })
}

// TestProgramsThatAreStopped comes before the tests that run in parallel, which need the programs.
func TestProgramsThatAreStopped(t *testing.T) {
	// A manager that leads ends when it cannot renew its Lease, which a slow machine may cause.
	leads := func(arguments ...string) {
		if err := sys.SetManagerArgs(context.Background(), arguments...); err != nil {
			t.Fatal(err)
		}
	}
	leads("--leader-elect=true")
	t.Cleanup(func() {
		leads()
		lease := &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: install.Namespace(), Name: "hawser-manager"}}
		if err := sys.Client.Delete(context.Background(), lease); err != nil {
			t.Error(err) // it would be that of a manager that has died
		}
	})
	manager := func(ask func(*story) question) func(*story) question {
		return func(s *story) question {
			s.volume()
			s.stops(system.Manager)
			return ask(s)
		}
	}
	serial(t, "the manager, which an intent waits for", situation{code: "HWS413", way: "Start the manager",
		comes: manager(func(s *story) question { return s.wants(nodeA) }), act: repaired, ends: (*story).ready})
	serial(t, "the manager, which a set waits for", situation{code: "HWS413", way: "Start the manager",
		comes: manager(func(s *story) question { return s.set() }), act: repaired, ends: setReady})
	serial(t, "the manager, which the doctor misses", situation{code: "HWS413", way: "Start the manager",
		comes: manager(func(*story) question { return examine("hawser-manager") }), act: repaired})
	serial(t, "the manager, which an agent that starts needs", situation{code: "HWS413", way: "Start the manager",
		comes: func(s *story) question {
			s.inUse(nodeB)
			s.stops(system.Manager)
			s.must(s.sys.StopProcess(s.limited(), system.Agent(nodeB)))
			s.must(s.sys.StartAgain(s.limited(), system.Agent(nodeB)))
			return s.wantsAs(s.name+"-more", s.name, nodeB)
		}, act: repaired, ends: (*story).ready})
	serial(t, "the attacher", situation{code: "HWS215", way: "Run the driver's external-attacher",
		comes: func(s *story) question {
			s.volume()
			s.stops(system.Attacher)
			return s.wants(nodeA)
		}, act: repaired, ends: (*story).ready})
	serial(t, "the resizer", situation{code: "HWS933", way: "Run the external-resizer of the driver",
		comes: func(s *story) question {
			s.volume()
			s.stops("csi-resizer-" + system.DriverName)
			s.asks("64Mi")
			s.asked(time.Now().Add(-20 * time.Minute))
			return examine(s.name)
		}, act: repaired})
	serial(t, "the attach/detach controller", situation{code: "HWS705", way: "the attach/detach controller does not run",
		comes: func(s *story) question {
			s.must(s.sys.SetAttachDetach(s.limited(), false))
			s.volume()
			s.pod(s.name, s.name, nodeA)
			return why("pod", s.name)
		},
		act: func(s *story) { s.must(s.sys.SetAttachDetach(s.limited(), true)) }})
	serial(t, "a lock that cannot be read", situation{code: "HWS213", way: "Repair it while no manager runs",
		comes: func(s *story) question {
			pv := s.inUse(nodeA)
			s.release(s.intent)
			s.must(s.sys.StopProcess(s.limited(), system.Manager))
			name := exclusive.Key(volume.UniqueNameOf(pv)).Name
			s.t.Cleanup(func() { _ = s.sys.StartAgain(s.limited(), system.Manager) }) // if it does not run
			s.patchLocks(name, `{"data":{"locks.json":"{"}}`)
			s.must(s.sys.StartAgain(s.limited(), system.Manager))
			s.end = func() {
				s.must(s.sys.StopProcess(s.limited(), system.Manager))
				s.patchLocks(name, `{"data":{"locks.json":null}}`)
				s.must(s.sys.StartAgain(s.limited(), system.Manager))
			}
			return s.wantsAs(s.name+"-again", s.name, nodeB)
		}, act: repaired, ends: (*story).ready})
	serial(t, "an admission policy", situation{code: "HWS120", way: "Apply the policies again",
		comes: func(s *story) question {
			s.volume()
			s.remove(&admissionv1.ValidatingAdmissionPolicyBinding{
				ObjectMeta: metav1.ObjectMeta{Name: system.Name("hawser-hold")}})
			return s.wants(nodeA)
		},
		act: func(s *story) {
			_, err := s.sys.Kubectl(s.limited(), "apply", "--server-side", "-k", filepath.Join(s.sys.Dir, "overlay"))
			s.must(err)
		}, ends: (*story).ready})
}

// asked lets the story's claim be as old as one that was restored: tools for that write back who wrote what when.
func (s *story) asked(when time.Time) {
	s.t.Helper()
	claim := claimOf(s.name)
	s.must(s.sys.Client.Get(s.limited(), client.ObjectKeyFromObject(claim), claim))
	before := claim.DeepCopy()
	for i := range claim.ManagedFields {
		f := &claim.ManagedFields[i]
		f.Manager, f.Time = f.Manager+"-restored", &metav1.Time{Time: when} // a time alone would be left as it is
	}
	s.must(s.sys.Client.Patch(s.limited(), claim, client.MergeFrom(before)))
}

// patchLocks changes a ConfigMap of locks as docs/troubleshoot.md has it.
func (s *story) patchLocks(name, patch string) {
	s.t.Helper()
	s.bash("set -o pipefail; kubectl get configmap " + name + " -n " + install.Namespace() + " -o yaml |" +
		" kubectl patch -f - --local --type=merge -p '" + patch + "' -o yaml |" +
		" kubectl replace --as=system:serviceaccount:" + system.Account("hawser-manager") + " -f -")
}
