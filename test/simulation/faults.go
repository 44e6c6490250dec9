/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package simulation

import (
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// fault is one kind of trouble.
type fault string

const (
	lateWrite     fault = "a write arrives after its sender has given up"
	lostAnswer    fault = "the answer to a write is lost"
	refused       fault = "a request does not arrive"
	slowRequest   fault = "a request takes long"
	watchStale    fault = "a watch falls behind"
	watchLost     fault = "a watch ends"
	kubeletKilled fault = "a kubelet is restarted"
	podForced     fault = "a pod is deleted with force"
	shared        fault = "a kubelet and an agent use one volume on one node"
	forgotten     fault = "a kubelet that was restarted does not know of a stage"
	nodeUnread    fault = "a Node cannot be read"
	clockJumps    fault = "a wall clock jumps"
	agentKilled   fault = "an agent is killed"
	agentStopped  fault = "an agent is restarted"
	managerKilled fault = "a manager is killed"
	managerAsleep fault = "a manager sleeps before a request, and another one takes over"
	reboot        fault = "a node reboots and renumbers its devices"
	callFinal     fault = "a driver call fails for good"
	callUncertain fault = "a driver call ends without anybody knowing how"
	callBusy      fault = "a driver is busy with an earlier call"
	callLate      fault = "a driver call has its effect after its answer"
	callHangs     fault = "a driver call hangs until its deadline"
	diskFails     fault = "the disk does not take a record"
	tableFails    fault = "the mount table cannot be read"
	deviceHeld    fault = "a process holds a device after its last umount"
	attachFails   fault = "the attacher fails"
	unmounted     fault = "somebody unmounts a stage by hand"
	outOfService  fault = "a node falls silent and is put out of service, and its attachments are forced away"
	leftTaint     fault = "the out-of-service taint is left on a node whose agent is back"
	wrongTaint    fault = "the out-of-service taint is set on a node whose agent is alive"
	earlyTaint    fault = "the out-of-service taint is set right after an agent has died"
	fenced        fault = "a machine is powered off and fenced"
	wrongFence    fault = "a fence is set on a machine whose agent is alive"
	silentFence   fault = "a fence is set on a machine that falls silent and goes on"
	declared      fault = "an administrator declares released what a machine still has mounted"
	remade        fault = "an intent is deleted and made anew under its name"
	partitioned   fault = "a machine goes on with what it has mounted while another one has its name"
	replaced      fault = "a machine is off for good, and another one has its name"
	reinstalled   fault = "a machine is installed anew"
	sickened      fault = "a filesystem works no more"

	attacherAsleep fault = "the attacher sleeps before it puts its finalizer on an attachment"
	volumeVanishes fault = "a PersistentVolume goes before its attachment is attached, and another has its handle"
)

// What else is counted, to see that worlds are not idle.
const (
	running           fault = "a pod runs"
	reconstructed     fault = "a kubelet finds again what it had published"
	attached          fault = "a volume is attached"
	staged            fault = "a volume is staged"
	published         fault = "a volume is published"
	boundInline       fault = "a pod gets an inline volume"
	keptInline        fault = "a pod keeps its inline volume although the kubelet asks again"
	detached          fault = "a volume is detached"
	taken             fault = "an attachment is forced away"
	contradicted      fault = "an agent contradicts a taint"
	fenceContradicted fault = "an agent contradicts a fence"
	fencedAway        fault = "an attachment is forced away on a fence"
	liftedSince       fault = "a manager finds that a fence was lifted since it was recorded"
	putOut            fault = "a manager sets the out-of-service taint"
	putIn             fault = "a manager removes the out-of-service taint"
	othersDeclared    fault = "an administrator ends what a machine used that is powered off"
	shut              fault = "a filesystem is shut down"
	foundSick         fault = "an agent reports that a volume works no more"
	checked           fault = "the invariants are checked"
)

// odds are how often each kind comes about: once in so many occasions. Those that are not here are scheduled, see
// wishes.
var odds = map[fault]uint64{
	lateWrite: 150, lostAnswer: 100, refused: 100, slowRequest: 80, watchStale: 60, watchLost: 200,
	agentKilled: 700, kubeletKilled: 120, nodeUnread: 30, clockJumps: 6, managerKilled: 900, managerAsleep: 300,
	callFinal: 12, callUncertain: 10, callLate: 10, callHangs: 16,
	diskFails: 30, tableFails: 120, deviceHeld: 10, attachFails: 8,
	attacherAsleep: 3, volumeVanishes: 3,
}

// chance makes every choice of a world. Each occasion has its own source, named by the seed, who asks for what, and
// how often it did so before. So a choice does not depend on what others do at the same time.
type chance struct {
	seed uint64

	mu      sync.Mutex
	asked   map[string]uint64
	reached map[fault]int
	over    bool
}

func newChance(seed uint64) *chance {
	return &chance{seed: seed, asked: map[string]uint64{}, reached: map[fault]int{}}
}

func (c *chance) draw(who, what string) *rand.Rand {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := who + " " + what
	c.asked[name]++
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // cannot fail
	return rand.New(rand.NewPCG(c.seed, h.Sum64()+c.asked[name]*0x9e3779b97f4a7c15))
}

// happens says whether the fault comes about now. After cease none does.
func (c *chance) happens(who string, f fault) bool {
	r := c.draw(who, string(f))
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over || odds[f] == 0 || r.Uint64N(odds[f]) != 0 {
		return false
	}
	c.reached[f]++
	return true
}

func (c *chance) reach(f fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reached[f]++
}

func (c *chance) between(who string, least, most time.Duration) time.Duration {
	return least + time.Duration(c.draw(who, "time").Int64N(int64(most-least)))
}

// latency of one step: mostly a few milliseconds, now and then much more.
func (c *chance) latency(who string) time.Duration {
	r := c.draw(who, "latency")
	least := time.Duration(r.Int64N(int64(5 * time.Millisecond)))
	if r.Uint64N(16) == 0 {
		return least + time.Duration(r.Int64N(int64(time.Second)))
	}
	return least
}

// cease ends all trouble.
func (c *chance) cease() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
}

func (c *chance) ceased() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.over
}

func (c *chance) seen() map[fault]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.reached)
}

// ofKubelets is what happens only where there are kubelets.
func ofKubelets() []fault {
	return []fault{running, reconstructed, kubeletKilled, podForced, shared, forgotten}
}

// ofMachines is what happens only where nodes have neither kubelets nor pods with inline volumes.
func ofMachines() []fault { return []fault{partitioned, replaced, reinstalled, othersDeclared} }

// ofInline is what happens only where pods have inline volumes.
func ofInline() []fault { return []fault{boundInline, keptInline} }

// faults in order.
func faults() []fault {
	all := slices.Sorted(maps.Keys(odds))
	return append(all, agentStopped, reboot, remade, callBusy, unmounted, partitioned, replaced, reinstalled,
		outOfService, leftTaint, wrongTaint, earlyTaint, fenced, wrongFence, silentFence, declared, podForced,
		shared, forgotten, sickened)
}
