/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package catalog

import volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"

// Reasons of what the walk finds in Hawser's own objects, beside their conditions.
const (
	// UnknownReason is for reasons of a newer version.
	UnknownReason = "UnknownReason"
	// NotObserved means that no manager has reconciled the intent.
	NotObserved = "IntentNotObserved"
	// NotReported means that a manager has reconciled the intent, and the agent of its node has not reported on it.
	NotReported = "IntentNotReported"
	// Outdated means that an object shows otherwise than a condition or an event about it.
	Outdated = "ConditionOutdated"
	// LeaseExpired means that the agent does not renew its Lease.
	LeaseExpired = "AgentLeaseExpired"
	// AgentLate means that the agent has not renewed its Lease in time.
	AgentLate = "AgentLate"
	// LeaseMissing means that the node has no agent.
	LeaseMissing = "AgentMissing"
	// LeaseElsewhere means that the node's agent has reported, and has no Lease where it was looked for.
	LeaseElsewhere = "AgentLeaseElsewhere"
	// ManagerSilent means that no manager renews the Lease of the leader.
	ManagerSilent = "ManagerSilent"
	// StateMissing means that the node has no NodeVolumeState.
	StateMissing = "NodeStateMissing"
	// FenceLifted means that a fence that cut access was lifted before the agent has reported.
	FenceLifted = "FenceLifted"
	// IntentKeepsNode means that the deletion of a Node waits for an intent there.
	IntentKeepsNode = "IntentKeepsNode"
	// ForcedAwayKeepsNode means that it waits for a VolumeAttachment that is kept after a forced detach.
	ForcedAwayKeepsNode = "ForcedAwayKeepsNode"
	// Orphaned means that a publication has no intent.
	Orphaned = "OrphanedPublication"
	// DetachStuck means that a detach does not succeed.
	DetachStuck = "DetachStuck"
	// Unprotected means that the old mount of a forced detach may still write.
	Unprotected = "UnprotectedMount"
	// VolumeBusy means that the volume cannot be released, because something uses its mount or its device.
	VolumeBusy = "VolumeBusy"
	// VolumeError means that a line of a node state has an error.
	VolumeError = "VolumeError"
	// HolderOnDeadNode means that the holder's node cannot release.
	HolderOnDeadNode = "HolderCannotRelease"
	// Stalled means that no retry helps.
	Stalled = "Stalled"
	// IntentOnNode means that an intent on this node is not ready.
	IntentOnNode = "IntentNotReady"
	// VolumeFull means that a filesystem has hardly any bytes or inodes left.
	VolumeFull = "VolumeFull"
	// VolumeUnhealthy means that the driver reports a problem of the volume.
	VolumeUnhealthy = "VolumeUnhealthy"
)

const sameMachine = "kubectl get nvs {node} -o jsonpath='{.status.conditions[?(@.type==\"SameMachine\")].message}'"

// ready are the reasons of Ready and of node states.
var ready = []Entry{
	{Code: "HWS401", Reason: volumesv1alpha1.ReasonProgressing, Level: Waiting, Depth: Symptom, Acts: Hawser,
		Says: "Nothing is wrong; a condition is not there yet."},
	{Code: "HWS402", Reason: volumesv1alpha1.ReasonReleasing, Level: Waiting, Depth: Symptom, Acts: Hawser,
		Says: "The intent is being deleted and its volume released.",
		Way:  "If lastError is set, follow it.", Run: []string{lastError}},
	{Code: "HWS403", Reason: volumesv1alpha1.ReasonAgentUnreachable, Level: Problem, Depth: Direct, Acts: OnNode,
		Says: "The agent of the node has not renewed its Lease for 40 seconds. Mounts stay; nothing is released there.",
		Way:  "Bring the agent back.", Off: "node",
		Run: []string{"kubectl get node {node}",
			"kubectl get pods -n {system} -o wide --field-selector spec.nodeName={node}"}},
	{Code: "HWS404", Reason: volumesv1alpha1.ReasonAgentStopped, Level: Problem, Depth: Root, Acts: OnNode,
		Says: "The agent of the node was stopped and reported that. Mounts stay; nothing is released there.",
		Way:  "Start the agent again.", Off: "node",
		Run: []string{"kubectl get pods -n {system} -o wide --field-selector spec.nodeName={node}"}},
	{Code: "HWS405", Reason: volumesv1alpha1.ReasonDriversMissing, Level: Problem, Depth: Root, Acts: Storage,
		Says: "A driver that volumes on the node need is not registered there, so they are not mounted or unmounted.",
		Way:  "Run the driver's node plugin on that node.",
		Run:  []string{agentLog}},
	{Code: "HWS406", Reason: volumesv1alpha1.ReasonVolumesFailing, Level: Problem, Depth: Direct, Acts: Storage,
		Says: "Volumes of the node have an error or an abnormal condition.",
		Run:  []string{"kubectl get nvs {node} -o jsonpath='{.status.volumes[*].error.message}'"}},
	{Code: "HWS407", Reason: volumesv1alpha1.ReasonMountsDiffer, Level: Problem, Depth: Root, Acts: OnNode,
		Says: "The mount table of the node differs from the agent's records.",
		Way:  "The message names the mount or the record. Remove foreign mounts; for orphans create the intent again.",
		Run:  []string{"kubectl get nvs {node} -o yaml"}},
	{Code: "HWS408", Reason: volumesv1alpha1.ReasonVolumesPresent, Level: Note, Depth: Direct,
		Says: "Volumes are attached to the node or in use there, so it should not be removed yet."},
	{Code: "HWS410", Reason: NotObserved, Level: Problem, Depth: Symptom, Acts: Cluster,
		Says: "No manager has reconciled this generation of the intent.",
		Way:  "Run a manager.",
		Instead: []Instead{{Object: Leader, State: Present,
			Way: "A manager leads. If it lasts, its log has what keeps it from the intent.",
			Run: []string{"kubectl logs -n {system} -l app.kubernetes.io/component=manager --tail=50"}}},
		Run: []string{"kubectl get lease hawser-manager -n {system}", "kubectl get pods -n {system}"}},
	{Code: "HWS411", Reason: LeaseExpired, Level: Problem, Depth: Root, Acts: OnNode,
		Says: "The agent of the node does not renew its Lease: the agent, its node or the network is down.",
		Way:  "Bring the agent back.", Off: "node",
		Run: []string{"kubectl get pods -n {system} -o wide --field-selector spec.nodeName={node}",
			"kubectl get node {node}"}},
	{Code: "HWS412", Reason: LeaseMissing, Level: Problem, Depth: Root, Acts: Cluster,
		Says: "The node has no agent that has ever reported.",
		Way:  "Let the agent's DaemonSet run on that node.",
		Run:  []string{"kubectl get pods -n {system} -o wide --field-selector spec.nodeName={node}"}},
	{Code: "HWS413", Reason: ManagerSilent, Level: Problem, Depth: Root, Acts: Cluster,
		Says: "No manager renews the Lease of the leader, so nothing is attached or detached.",
		Way:  "Start the manager.",
		Run: []string{"kubectl get pods -n {system} -l app.kubernetes.io/component=manager",
			"kubectl logs -n {system} -l app.kubernetes.io/component=manager --tail=50"}},
	{Code: "HWS414", Reason: StateMissing, Level: Problem, Depth: Direct, Acts: Cluster,
		Says: "The node has no NodeVolumeState. The manager creates it for every Node.",
		Run:  []string{"kubectl get lease hawser-manager -n {system}"}},
	{Code: "HWS415", Reason: Orphaned, Level: Problem, Depth: Root, Acts: OnNode,
		Says: "A volume is published for an intent that does not exist. It stays and counts as in use.",
		Way:  "Create an intent of the same name on the same volume, then delete it.",
		Run:  []string{"kubectl get nvs {node} -o yaml"}},
	{Code: "HWS416", Reason: DetachStuck, Level: Problem, Depth: Root, Acts: Storage,
		Says: "A detach does not succeed: the driver's attacher reports an error or does not answer.",
		Way:  "Bring the attacher back, or the Secret that it needs: docs/troubleshoot.md, \"An attacher that is gone\".",
		Run:  []string{"kubectl get volumeattachment {attachment} -o yaml"}},
	{Code: "HWS417", Reason: Unprotected, Level: Problem, Depth: Root, Acts: OnNode,
		Says: "A mount of a volume that was detached by force is left and may still write to the volume.",
		Way: "End the use on that node and unmount the volume there, which the agent does not do, or switch the machine " +
			"off.",
		Run: []string{"kubectl get nvs {node} -o yaml"}},
	{Code: "HWS418", Reason: VolumeError, Level: Problem, Depth: Direct, Acts: Storage,
		Says: "The next step of a volume on this node fails.",
		Run:  []string{"kubectl get nvs {node} -o yaml"}},
	{Code: "HWS419", Reason: HolderOnDeadNode, Level: Problem, Depth: Chief, Acts: Cluster,
		Says: "Another node has the volume, which may be used on one node only, and that node cannot release it.",
		Way:  "Bring that node back.", Off: "holder",
		Run: []string{"kubectl hawser why node {holder}"}},
	{Code: "HWS420", Reason: Stalled, Level: Problem, Depth: Symptom, Acts: Author,
		Says: "No retry can help. The intent, or an object that it refers to, has to change."},
	{Code: "HWS421", Reason: IntentOnNode, Level: Problem, Depth: Symptom, Acts: Author,
		Says: "An intent on this node is not ready.",
		Run:  []string{"kubectl hawser why intent {intent} -n {namespace}"}},
	{Code: "HWS422", Reason: volumesv1alpha1.ReasonNodeRenamed, Level: Problem, Depth: Chief, Acts: OnNode,
		Says: "The node goes on under another name while volumes are attached.",
		Way:  "Give the node its old name back, or drain it under the new one: docs/troubleshoot.md.",
		Run:  []string{"kubectl get nvs {node} -o yaml"}},
	{Code: "HWS425", Reason: VolumeFull, Level: Problem, Depth: Direct, Acts: Author,
		Says: "Less than 3% of the bytes or inodes of the volume are free. Programs that write to it will fail.",
		Way:  "Expand the claim, or delete files.",
		Run: []string{"kubectl hawser top {node}",
			"kubectl get pv {volume} -o jsonpath='{.spec.claimRef.namespace}/{.spec.claimRef.name}'"}},
	{Code: "HWS426", Reason: LeaseElsewhere, Level: Note, Depth: Direct, Acts: Cluster,
		Says: "The node's agent has reported, but has no Lease here: name Hawser's namespace with --hawser-namespace.",
		Way:  "If it is the right namespace, see that the agent runs: it creates the Lease again.",
		Run: []string{"kubectl get leases -A --field-selector metadata.name={lease}",
			"kubectl get pods -A -o wide -l app.kubernetes.io/component=agent --field-selector spec.nodeName={node}"}},
	{Code: "HWS427", Reason: volumesv1alpha1.ReasonTaintContradicted, Level: Problem, Depth: Root, Acts: Cluster,
		Says: "The node has the taint node.kubernetes.io/out-of-service, but its agent has reported since. The " +
			"taint forces nothing.",
		Way: "If the machine runs, remove the taint. If it is off by now, remove the taint, wait until status.node of the " +
			"node state has no outOfService, and set it again.",
		Run: []string{"kubectl taint node {node} node.kubernetes.io/out-of-service-"}},
	{Code: "HWS428", Reason: volumesv1alpha1.ReasonReleaseFailing, Level: Problem, Depth: Direct, Acts: Storage,
		Says: "The agent of the node cannot release volumes: their unpublish or unstage fails, and is retried.",
		Way: "Repair what the error names. Only if nothing on the node uses them any more, declare their attachments " +
			"released: docs/operate.md, \"Declaring an attachment released\".",
		Instead: []Instead{declared(AllStuck), {Object: AllStuck, State: Held,
			Way: "The errors name what uses these volumes on the node, or an intent still wants them there. End that use, " +
				"and the agent releases them. Do not declare them released: a declaration detaches a volume in use."}},
		Run: []string{"kubectl get nvs {node} -o jsonpath='{.status.volumes[*].error.message}'", declareStuck}},
	{Code: "HWS429", Reason: volumesv1alpha1.ReasonAnotherMachine, Level: Problem, Depth: Root, Acts: Cluster,
		Says: "Another machine under this node name uses volumes. Nothing of that is released, and the agent takes no such " +
			"volume into use here.",
		Way: "Power the other machine off for good, then declare the attachments released: docs/operate.md, \"A machine " +
			"that was replaced\".",
		Instead: []Instead{declared(OtherMachine), {Object: OtherMachine, State: Shared,
			Way: "The machine that reports uses some of these attachments too, and a declaration would detach them there as " +
				"well. End that use first: drain its pods. Power the other machine off for good, and then declare the " +
				"attachments released: docs/operate.md, \"A machine that was replaced\".",
			Run: []string{sameMachine, "kubectl hawser plan drain {node}"}}},
		Run: []string{sameMachine, declareOther}},
	{Code: "HWS430", Reason: volumesv1alpha1.ReasonMachineUnknown, Level: Waiting, Depth: Direct, Acts: OnNode,
		Says: "It is not known which machine uses volumes under this node name, or did before its last boot.",
		Way: "The message explains it. Where the machine has neither a system UUID nor a machine ID, give the host an " +
			"/etc/machine-id, and restart the agent.",
		Run: []string{"kubectl get nvs {node} -o jsonpath='{.status.machine}'"}},
	{Code: "HWS431", Reason: volumesv1alpha1.ReasonNodeIDChanged, Level: Problem, Depth: Chief, Acts: Storage,
		Says: "The volume is attached to another ID of the node than the one that its driver registers now. The machine " +
			"with the new ID does not have it.",
		Way: "Make sure that the machine with the old ID is gone, and that the storage lists the volume there no more. " +
			"Then detach it: drain the node, and create its intents again.",
		Run: []string{"kubectl get csinode {node} -o yaml", "kubectl get volumeattachment {attachment} -o yaml",
			"kubectl hawser plan drain {node}"}},
	{Code: "HWS432", Reason: volumesv1alpha1.ReasonStorageUnhealthy, Level: Problem, Depth: Root, Acts: Storage,
		Says: "A driver reports that what stores its volumes does not work as it should, as seen from the node.",
		Way:  "The message has the driver's words. Repair the storage, or the node's way to it.",
		Run:  []string{"kubectl get nvs {node} -o jsonpath='{.status.drivers[*].storageHealth}'"}},
	{Code: "HWS433", Reason: VolumeUnhealthy, Level: Problem, Depth: Root, Acts: Storage,
		Says: "The driver reports a problem of the volume on this node.",
		Way: "The message has the driver's words. Degraded: the volume can be used. Inaccessible: repair the storage, or " +
			"the node's way to it. DataLoss: restore the data from a snapshot or another copy.",
		Run: []string{"kubectl get nvs {node} -o yaml"}},
	{Code: "HWS434", Reason: NotReported, Level: Problem, Depth: Symptom, Acts: OnNode,
		Says: "A manager has reconciled the intent. The agent of its node has not reported on it.",
		Run:  []string{"kubectl hawser why node {node}"}},
	{Code: "HWS435", Reason: Outdated, Level: Waiting, Depth: Symptom, Acts: Writer,
		Says: "A condition or an event is older than what it is about. An object shows otherwise now.",
		Way: "Its writer sees the object or tries again: as a rule within a minute, after failures a kubelet within two " +
			"and an external-attacher within five. If it lasts, see whether it runs."},
	{Code: "HWS436", Reason: AgentLate, Level: Waiting, Depth: Direct, Acts: OnNode,
		Says: "The agent of the node has missed renewals of its Lease. It counts as unreachable after 40 seconds.",
		Way:  "If it lasts, see why the agent does not run. What it reports is as old as the last renewal.",
		Run: []string{"kubectl get pods -n {system} -o wide --field-selector spec.nodeName={node}",
			"kubectl get node {node}"}},
	{Code: "HWS437", Reason: volumesv1alpha1.ReasonFenceContradicted, Level: Problem, Depth: Root, Acts: Cluster,
		Says: "A fence holds for the node, but its agent has reported since. The fence forces nothing.",
		Way: "If the machine runs, have the program that fenced it lift the fence, or correct the source that names it. If " +
			"it is off by now, fence it again.",
		Run: []string{"kubectl get nvs {node} -o jsonpath='{.status.node.fences}'"}},
	{Code: "HWS438", Reason: volumesv1alpha1.ReasonEvidenceMissing, Level: Problem, Depth: Direct, Acts: Cluster,
		Says: "The agent of the node is silent, and nothing proves that its machine is off, so its volumes stay attached.",
		Way:  "Bring the agent back.", Off: "node",
		Run: []string{"kubectl hawser plan fence {node}"}},
	{Code: "HWS439", Reason: FenceLifted, Level: Problem, Depth: Root, Acts: Cluster,
		Says: "The fence that cut the node's access to a volume was lifted before the node's agent has reported that " +
			"nothing of the volume is left. What is mounted there may write to it.",
		Way: "Fence the node again, and keep the fence until the volume is gone from the node state. A volume that was not " +
			"handed over yet waits for the agent's report. If the machine is off for good, declare the attachment released.",
		Instead: []Instead{declared(OneAttachment)}, Run: []string{"kubectl get nvs {node} -o yaml", declareOne}},
	{Code: "HWS499", Reason: UnknownReason, Level: Problem, Depth: Direct,
		Says: "This version of the plugin does not know the reason. The message explains it.",
		Way:  "Use the plugin of the version that runs in the cluster."},
}
