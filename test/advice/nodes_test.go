/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package advice

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/install"
	"github.com/hawser-io/hawser/test/csiloop/faults"
	"github.com/hawser-io/hawser/test/system"
)

// nodes that a story at a time disturbs.
var nodes sync.Map

// alone waits until no other story disturbs the node.
func (s *story) alone(node string) {
	lock, _ := nodes.LoadOrStore(node, &sync.Mutex{})
	lock.(*sync.Mutex).Lock()
	s.t.Cleanup(lock.(*sync.Mutex).Unlock)
}

// inUse brings a volume to a node.
func (s *story) inUse(node string) *corev1.PersistentVolume {
	s.t.Helper()
	pv := s.volume()
	s.wants(node)
	s.ready()
	return pv
}

// stopsAlone stops a program of a node that other stories do not use meanwhile.
func (s *story) stopsAlone(node, program string) {
	s.t.Helper()
	s.alone(node)
	s.inUse(node)
	s.stops(program)
}

// arguments guards those of the drivers.
var arguments sync.Mutex

// registers starts the driver of a node again, with other arguments.
func (s *story) registers(node string, own ...string) {
	s.t.Helper()
	arguments.Lock()
	defer arguments.Unlock()
	s.must(s.sys.StopProcess(s.limited(), system.NodeDriver(node)))
	s.sys.ArgsOfDriver[node] = own
	s.must(s.sys.StartNodeDriver(s.limited(), node))
}

// silence stops the kubelet of a node, or starts it again.
func (s *story) silence(node string, silent bool) {
	s.t.Helper()
	file := filepath.Join(s.sys.Dir, "nodes", node, "silent")
	if silent {
		s.must(os.WriteFile(file, nil, 0o600))
		s.t.Cleanup(func() { _ = os.Remove(file) }) // if the test has not
		return
	}
	s.must(os.Remove(file))
}

func silentNode(s *story, node string) {
	s.t.Helper()
	await(s, &corev1.NodeList{}, s.node(node), func(n *corev1.Node) bool {
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady {
				return c.Status == corev1.ConditionUnknown
			}
		}
		return false
	})
}

// lost takes a volume from a node whose machine seems dead, and which then returns.
func (s *story) lost(node string, pv *corev1.PersistentVolume) {
	s.t.Helper()
	attachment := s.attachment(pv)
	s.silence(node, true)
	s.must(s.sys.Kill(system.Agent(node)))
	silentNode(s, node)
	s.bash("kubectl taint node " + node + " node.kubernetes.io/out-of-service=down:NoExecute")
	s.dropped(s.intent)
	await(s, &storagev1.VolumeAttachmentList{}, attachment, func(va *storagev1.VolumeAttachment) bool {
		return !va.Status.Attached // it stays until the agent has seen that
	})
	s.bash("kubectl taint node " + node + " node.kubernetes.io/out-of-service-")
	s.silence(node, false)
	s.must(s.sys.StartAgain(s.limited(), system.Agent(node)))
}

func TestAgentsAndDrivers(t *testing.T) {
	play(t, map[string]situation{
		"a driver that is not on the node": {code: "HWS209", way: "Run the driver's node plugin", act: repaired,
			ends: (*story).ready,
			comes: func(s *story) question {
				s.stopsAlone(nodeBare, system.NodeDriver(nodeBare))
				s.bound(s.claim(s.name + "-late"))
				return s.wantsAs(s.name+"-late", s.name+"-late", nodeBare)
			}},
		"a driver that a node's volumes need": {code: "HWS405", way: "Run the driver's node plugin", act: repaired,
			comes: func(s *story) question {
				s.stopsAlone(nodeBare, system.NodeDriver(nodeBare))
				return why("node", nodeBare)
			}},
		"an agent that was stopped": {code: "HWS404", way: "Start the agent again", act: repaired, ends: (*story).ready,
			comes: func(s *story) question {
				s.stopsAlone(nodeStopped, system.Agent(nodeStopped))
				s.bound(s.claim(s.name + "-late"))
				return s.wantsAs(s.name+"-late", s.name+"-late", nodeStopped)
			}},
		"an agent that is dead": {code: "HWS411", way: "Bring the agent back", ends: (*story).isGone,
			comes: func(s *story) question {
				s.alone(nodeStopped)
				s.inUse(nodeStopped)
				s.must(s.sys.Kill(system.Agent(nodeStopped)))
				s.end = func() { s.must(s.sys.StartAgain(s.limited(), system.Agent(nodeStopped))) }
				s.dropped(s.intent)
				return why("intent", s.intent)
			}, act: repaired},
		"a publication whose intent was removed by force": {code: "HWS415", way: "Create an intent of the same name",
			comes: func(s *story) question {
				s.alone(nodeStopped)
				s.inUse(nodeStopped)
				s.must(s.sys.StopProcess(s.limited(), system.Agent(nodeStopped)))
				s.dropped(s.intent)
				s.patch(intentOf(s.intent, "", ""), `{"metadata":{"finalizers":null}}`)
				s.isGone()
				s.must(s.sys.StartAgain(s.limited(), system.Agent(nodeStopped)))
				return why("node", nodeStopped)
			},
			act: func(s *story) { s.wants(nodeStopped); s.ready(); s.release(s.intent) }},
		"a mount that outlives a forced detach": {code: "HWS417", way: "and unmount the volume there",
			comes: func(s *story) question {
				s.alone(nodeDead)
				s.create(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "btrfs"}, Provisioner: system.DriverName,
					Parameters: map[string]string{"csi.storage.k8s.io/fstype": "btrfs"}})
				pv := s.volume(ofClass("btrfs"), func(c *corev1.PersistentVolumeClaim) {
					c.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("128Mi")
				})
				s.wants(nodeDead)
				s.opens(s.path())
				s.lost(nodeDead, pv)
				return why("node", nodeDead)
			},
			act: func(s *story) {
				s.end()
				s.unmount(filepath.Join(s.sys.Dir, "nodes", nodeDead), "/")
			}},
		"a Node whose deletion waits for an intent": {code: "HWS121",
			comes: func(s *story) question {
				s.alone(nodeOdd)
				s.inUse(nodeOdd)
				s.patch(s.node(nodeOdd), `{"metadata":{"finalizers":["example.com/stays"]}}`)
				s.remove(s.node(nodeOdd))
				s.t.Cleanup(func() { s.patch(s.node(nodeOdd), `{"metadata":{"finalizers":null}}`) })
				return why("node", nodeOdd)
			}},
		"a kubelet that is silent": {code: "HWS710", way: "Repair the node",
			comes: func(s *story) question {
				s.alone(nodeDead)
				s.silence(nodeDead, true)
				silentNode(s, nodeDead)
				return why("node", nodeDead)
			},
			act: func(s *story) { s.silence(nodeDead, false) }},
		"a taint that is left on a node": {code: "HWS711",
			comes: func(s *story) question {
				s.alone(nodeBare)
				s.must(s.sys.StopProcess(s.limited(), system.Agent(nodeBare)))
				s.t.Cleanup(func() { s.must(s.sys.StartAgain(s.limited(), system.Agent(nodeBare))) })
				s.outOfService(nodeBare)
				return why("node", nodeBare)
			}},
		"another machine of the node's name": {code: "HWS429", way: "then declare the attachments released",
			comes: func(s *story) question {
				s.alone(nodeStopped)
				s.inUse(nodeStopped)
				s.must(s.sys.StopProcess(s.limited(), system.Agent(nodeStopped)))
				s.must(s.sys.SetAside(nodeStopped, "first"))
				s.must(s.sys.Identify(nodeStopped, "second"))
				s.must(s.sys.StartAgain(s.limited(), system.Agent(nodeStopped)))
				s.t.Cleanup(func() { s.unmount(filepath.Join(s.sys.Dir, "nodes", nodeStopped), "-of-first") })
				return why("node", nodeStopped)
			},
			act: func(s *story) {
				s.bash("kubectl hawser declare-released " + nodeStopped +
					" --other-machine --reason=off --yes --hawser-namespace=" +
					install.Namespace())
			}},
		"a release that fails": {code: "HWS428", way: "Repair what the error names",
			comes: func(s *story) question {
				pv := s.inUse(nodeB)
				s.fails(faults.Fault{Method: "NodeUnpublishVolume", Volume: pv.Spec.CSI.VolumeHandle, Code: codes.Internal,
					Message: "it broke"})
				s.dropped(s.intent)
				return why("node", nodeB)
			}, act: repaired},
		"a full disk below the agent's root": {code: "HWS326", way: "Free space below the agent's root",
			ends: (*story).ready,
			comes: func(s *story) question {
				s.alone(nodeStopped)
				records := filepath.Join(s.sys.AgentRoot(nodeStopped), "volumes")
				s.must(s.sys.StopProcess(s.limited(), system.Agent(nodeStopped)))
				s.must(os.MkdirAll(records, 0o700))
				s.must(unix.Mount("tmpfs", records, "tmpfs", 0, "size=16k"))
				s.other = filepath.Join(records, "filler")
				s.must(os.WriteFile(s.other, make([]byte, 16<<10), 0o600))
				s.must(s.sys.StartAgain(s.limited(), system.Agent(nodeStopped)))
				s.t.Cleanup(func() {
					s.must(s.sys.StopProcess(s.limited(), system.Agent(nodeStopped)))
					s.must(unix.Unmount(records, unix.MNT_DETACH))
					s.must(s.sys.StartAgain(s.limited(), system.Agent(nodeStopped)))
				})
				s.volume()
				return s.wants(nodeStopped)
			},
			act: func(s *story) { s.must(os.Remove(s.other)) }},
		"a node without an agent": {code: "HWS412", way: "Let the agent's DaemonSet run", act: repaired,
			ends: (*story).ready,
			comes: func(s *story) question {
				s.alone(nodeStopped)
				s.must(s.sys.StopProcess(s.limited(), system.Agent(nodeStopped)))
				s.end = func() { s.must(s.sys.StartAgain(s.limited(), system.Agent(nodeStopped))) }
				lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: install.Namespace(),
					Name: volumesv1alpha1.AgentLeasePrefix + nodeStopped}}
				s.remove(lease)
				state := &volumesv1alpha1.NodeVolumeState{ObjectMeta: metav1.ObjectMeta{Name: nodeStopped}}
				s.remove(state)
				await(s, &volumesv1alpha1.NodeVolumeStateList{}, state, func(n *volumesv1alpha1.NodeVolumeState) bool {
					return n != nil && n.Status.AgentVersion == "" && n.DeletionTimestamp == nil
				})
				s.volume()
				return s.wants(nodeStopped)
			}},
	})
}

// unmount unmounts everything below the directory whose path contains a text, as the end of its machine would.
func (s *story) unmount(directory, text string) {
	s.t.Helper()
	mounts, err := system.MountsBelow(directory)
	s.must(err)
	for _, path := range slices.Backward(mounts) {
		if strings.Contains(path, text) {
			s.must(unix.Unmount(path, unix.MNT_DETACH))
		}
	}
}
