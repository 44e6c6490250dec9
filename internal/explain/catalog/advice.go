/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package catalog

import (
	"slices"
	"strings"
)

// State is what was read of an object that an advice is about.
type State int

const (
	// Unread is an object of which nothing is known.
	Unread State = iota
	// Present objects can be read and changed.
	Present
	// Pinned is an intent that keeps to the claim and the volume that it began with.
	Pinned
	// Held is a VolumeAttachment that Hawser keeps for intents, which the API server refuses to delete, or the declaration
	// of what is in use.
	Held
	// Tainted is a Node with the taint node.kubernetes.io/out-of-service.
	Tainted
	// Fenced is a Node on which the manager has set that taint. It is the fence that asserts something.
	Fenced
	// Contradicted is a Node with that taint whose agent has reported since, so that the taint forces nothing.
	Contradicted
	// Deleting objects have a deletion timestamp.
	Deleting
	// Done is an act that was carried out already.
	Done
	// Shared are attachments of another machine that the machine which reports uses too.
	Shared
	// Gone objects do not exist.
	Gone
	// Unset is an object that has no name yet, such as the Node of a pod that the scheduler has not bound.
	Unset
)

// Objects that are no single object of the API server.
const (
	// Users are the pods and intents that use the volume of the subject.
	Users = "users"
	// Holders are the pods and intents that have the volume on another node.
	Holders = "holders"
	// Leader is the manager that leads, as long as it renews its Lease.
	Leader = "the leading manager"
	// AllStuck is the declaration of all attachments whose release fails on the machine that reports.
	AllStuck = "declare-released {node} --all-stuck"
	// OtherMachine is the declaration of all attachments that only another machine of the node's name uses.
	OtherMachine = "declare-released {node} --other-machine"
	// OneAttachment is the declaration of one attachment.
	OneAttachment = "declare-released {node} {uid}"
)

// States are what was read, by the object as commands name it, such as "node {node}" and "vai {intent}".
type States map[string]State

// Instead is the way out where an object is in such a state that the one of the entry is not possible, or is done.
type Instead struct {
	Object string
	State  State
	// Way, and that of a cluster without Hawser where it differs.
	Way, WayAlone string
	// Acts and Run replace those of the entry, if they are set.
	Acts Actor
	Run  []string
	// Data is as that of the entry.
	Data bool
}

// released is for entries whose way out is another intent, or none.
var released = Instead{Object: "vai {intent}", State: Deleting, Acts: Hawser,
	Way: "The intent is being deleted already. It only waits for its release."}

// letGo is for a volume that another intent has.
var letGo = Instead{Object: Holders, State: Deleting,
	Way: "The pods and intents that hold it are being deleted already. If it lasts, see what their node waits " +
		"for.",
	WayAlone: "The pods that hold it are being deleted already. If it lasts, see what their node waits for."}

// kept is for what an intent began with and cannot get back: a claim or volume of the same name is another one.
var kept = Instead{Object: "vai {intent}", State: Pinned, Acts: Author, Data: true,
	Way: "Delete the intent. It keeps to the claim and the volume that it began with. Others of the same names do not " +
		"replace them.",
	Run: []string{"kubectl delete vai {intent} -n {namespace}"}}

// Commands that declare attachments released. They only show what they would do.
const (
	declareOne   = "kubectl hawser " + OneAttachment + " --reason=... --dry-run"
	declareStuck = "kubectl hawser " + AllStuck + " --reason=... --dry-run"
	declareOther = "kubectl hawser " + OtherMachine + " --reason=... --dry-run"
)

// declared is for attachments that only a declaration ends.
func declared(object string) Instead {
	return Instead{Object: object, State: Done, Acts: Hawser,
		Way: "The release is declared already, and the manager detaches what was declared. If it lasts, see whether a " +
			"manager runs."}
}

// For completes the way out of an entry in the state that was read. It has no act that is done already or that is not
// possible.
func (e Entry) For(states States) Entry {
	for _, i := range e.Instead {
		if states[i.Object] == i.State {
			e = e.replaced(i)
			break
		}
	}
	if states[Installation] == Gone {
		e = e.withoutHawser()
	}
	if e.Off != "" {
		e = e.off(states["node {"+e.Off+"}"], states[Installation] != Gone)
	}
	if e.Data {
		e = e.keeping(states[Retain])
	}
	e.Run = slices.DeleteFunc(slices.Clone(e.Run), func(command string) bool { return !possible(command, states) })
	return e
}

func (e Entry) replaced(i Instead) Entry {
	e.Way, e.WayAlone, e.Data = i.Way, i.WayAlone, e.Data || i.Data
	if i.Acts != NoActor {
		e.Acts = i.Acts
	}
	if i.Run != nil {
		e.Run = i.Run
	}
	return e
}

// off completes the way out by that of a machine that is off.
func (e Entry) off(node State, installed bool) Entry {
	switch {
	case node == Gone && !installed:
		e.Way = "The Node does not exist any more, and its volumes are detached by force after some minutes. Make sure " +
			"that its machine is off: docs/operate.md, \"A node that is dead\"."
	case node == Gone:
		e.Way = "The Node does not exist any more. If its machine runs, restart its kubelet. If it is off for good, its " +
			"volumes are detached if it was out of reach when the Node was deleted, and have to be declared released " +
			"otherwise: docs/operate.md, \"A Node is deleted while its machine runs\"."
	case node == Tainted && !installed:
		e.Way += " The taint node.kubernetes.io/out-of-service is set already: Kubernetes detaches the volumes by force."
	case node == Tainted:
		e.Way += " The taint node.kubernetes.io/out-of-service is set already: the volumes are detached by force, by " +
			"Hawser once its agent has been silent since."
	case node == Fenced:
		e.Way += " The manager has set the taint node.kubernetes.io/out-of-service on a fence, which detaches the volumes " +
			"as long as it holds. If it does not hold any more and the machine is off, set the taint in its place: " +
			"docs/operate.md, \"A node that is dead\"."
		e.Run = append(slices.Clone(e.Run), "kubectl taint node {"+e.Off+"} --overwrite "+
			"node.kubernetes.io/out-of-service=down:NoExecute   # only if the machine is off")
	case node == Contradicted:
		e.Way += " The taint node.kubernetes.io/out-of-service forces nothing, because the agent reported after it was " +
			"set. If the machine is off, remove the taint, wait until status.node of the node state has no outOfService, " +
			"and set it again."
		e.Run = append(slices.Clone(e.Run), "kubectl taint node {"+e.Off+"} node.kubernetes.io/out-of-service-")
	default:
		e.Way += " If the machine is off, set the taint, which also ends all pods of the node that do not tolerate it: " +
			"docs/operate.md, \"A node that is dead\"."
		e.Run = append(slices.Clone(e.Run), "kubectl get pods -A -o wide --field-selector spec.nodeName={"+e.Off+"}"+
			"   # what the taint ends", "kubectl taint node {"+e.Off+"} node.kubernetes.io/out-of-service=down:NoExecute"+
			"   # only if the machine is off")
	}
	return e
}

// refusing are the states of an object in which a command about it fails, or changes nothing.
var refusing = map[string][]State{
	"get": {Gone}, "describe": {Gone}, "why": {Gone}, "plan": {Gone}, "top": {Gone}, "uncordon": {Gone},
	"delete": {Gone, Deleting, Held}, "patch": {Gone, Deleting}, "label": {Gone, Deleting},
	"declare-released": {Gone, Done, Shared, Held},
	"taint":            {Gone, Tainted, Contradicted}, "untaint": {Gone, Present, Deleting},
	"unfinalize": {Gone, Present},
}

// OfHawser reports whether a command needs Hawser's kinds.
func OfHawser(command string) bool {
	return slices.ContainsFunc(strings.Fields(command), func(word string) bool { return word == "vai" || word == "nvs" })
}

// possible reports whether a command can succeed, and is not carried out already.
func possible(command string, states States) bool {
	words := strings.Fields(strings.TrimPrefix(strings.TrimPrefix(command, "kubectl "), "hawser "))
	words = append(words, "", "", "") // for commands without an object
	verb, object := words[0], words[1]+" "+words[2]
	switch {
	case verb == "taint" && strings.HasSuffix(words[3], "-"):
		verb = "untaint"
	case verb == "patch" && strings.Contains(command, "finalizers"):
		verb = "unfinalize"
	case verb == "plan", verb == "why" && words[1] == "node" && states[object] == Gone:
		object = "nvs " + words[2] // a node is a subject as long as its node state is left
	case verb == "why":
		object = strings.Replace(object, "intent ", "vai ", 1)
	case verb == "declare-released":
		object = strings.Join(words[:3], " ")
	case verb == "top":
		object = "nvs " + words[1]
	case verb == "uncordon":
		object = "node " + words[1]
	}
	return !slices.Contains(refusing[verb], states[object])
}
