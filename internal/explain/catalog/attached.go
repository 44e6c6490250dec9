/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package catalog

import volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"

// backsOff is how long a repair may take to show: external-attachers have --retry-interval-max.
const backsOff = "After its repair it may last some minutes more: an attacher waits longer after each failure, by " +
	"default up to five minutes."

// attached are the reasons of Attached.
var attached = []Entry{
	{Code: "HWS201", Reason: volumesv1alpha1.ReasonAttaching, Level: Waiting, Depth: Direct, Acts: Driver,
		Says: "The driver's attacher works on the attachment.",
		Run:  []string{"kubectl get volumeattachment {attachment} -o yaml"}},
	{Code: "HWS202", Reason: volumesv1alpha1.ReasonAttachFailed, Level: Problem, Depth: Root, Acts: Storage,
		Says: "The volume could not be attached. The attacher or the driver reports an error, and the attacher tries again.",
		Way:  "The error names the cause. " + backsOff,
		Run:  []string{"kubectl get volumeattachment {attachment} -o jsonpath='{.status.attachError.message}'"}},
	{Code: "HWS203", Reason: volumesv1alpha1.ReasonDetaching, Level: Waiting, Depth: Direct, Acts: Driver,
		Says: "The volume is being detached from this node. It is attached again after that.",
		Run:  []string{"kubectl get volumeattachment {attachment} -o yaml", "kubectl hawser why node {node}"}},
	{Code: "HWS204", Reason: volumesv1alpha1.ReasonDetachFailed, Level: Problem, Depth: Root, Acts: Storage,
		Says: "The volume could not be detached. The attacher or the driver reports an error, and the attacher tries again.",
		Way:  "The volume counts as attached. The error names the cause. If no attacher runs, bring it back. " + backsOff,
		Run:  []string{"kubectl get volumeattachment {attachment} -o jsonpath='{.status.detachError.message}'"}},
	{Code: "HWS205", Reason: volumesv1alpha1.ReasonDetached, Level: Waiting, Depth: Direct, Acts: Hawser,
		Says: "The volume is not attached, because the intent did not resolve. It is attached once the intent resolves."},
	{Code: "HWS206", Reason: volumesv1alpha1.ReasonVolumeInUse, Level: Problem, Depth: Direct, Acts: Holder,
		Says:    "The volume may be used on one node only, and another node has it.",
		Way:     "Delete the intent or the pod that holds it. If that node is dead, make sure that the machine is off.",
		Instead: []Instead{letGo},
		Run: []string{"kubectl get vai -A --field-selector status.volumeName={volume}",
			"kubectl hawser why pv {volume}"}},
	{Code: "HWS207", Reason: volumesv1alpha1.ReasonReadWriteOncePod, Level: Problem, Depth: Root, Acts: Holder,
		Says: "The claim allows one pod or intent only, and another one has it.",
		Way:  "Delete the other user, or use a claim with another access mode.", Instead: []Instead{letGo},
		Run: []string{"kubectl get vai -A --field-selector status.volumeName={volume}", "kubectl hawser why pv {volume}"}},
	{Code: "HWS208", Reason: volumesv1alpha1.ReasonNodeLimitReached, Level: Problem, Depth: Root, Acts: OnNode,
		Says: "The node has as many volumes of the driver as it can take. The oldest waits come first when there is room.",
		Way:  "Move other volumes away from the node, or use another node.",
		Run: []string{"kubectl get csinode {node} -o jsonpath='{.spec.drivers}'",
			"kubectl get vai -A --field-selector spec.nodeName={node}"}},
	{Code: "HWS209", Reason: volumesv1alpha1.ReasonDriverNotInstalled, Level: Problem, Depth: Root, Acts: Storage,
		Says: "The driver is not installed on the node: the node's CSINode does not list it.",
		Way:  "Run the driver's node plugin on that node. A taint, a selector or a missing image keeps it away, as a rule.",
		Run: []string{"kubectl get csinode {node} -o jsonpath='{.spec.drivers[*].name}'",
			"kubectl get pods -A -o wide --field-selector spec.nodeName={node}"}},
	{Code: "HWS210", Reason: volumesv1alpha1.ReasonForcedAway, Level: Problem, Depth: Direct, Acts: OnNode,
		Says: "The volume was detached from this node by force, and the node's agent has not reported since.",
		Way:  "Bring the agent of the node back. A pod that waits there may have to be deleted.",
		Instead: []Instead{declared(OneAttachment), {Object: "node {node}", State: Gone, Acts: Cluster,
			Way: "The Node does not exist any more. If its machine is off for good, declare the attachment released: " +
				"docs/operate.md, \"Declaring an attachment released\".", Run: []string{declareOne}}},
		Run: []string{"kubectl hawser why node {node}", "kubectl get nvs {node} -o yaml"}},
	{Code: "HWS211", Reason: volumesv1alpha1.ReasonWaitingForAgent, Level: Problem, Depth: Direct, Acts: OnNode,
		Says: "The node's agent has not reported to this manager yet, so every volume counts as in use there.",
		Way:  "If it lasts, see why the agent does not report.",
		Run:  []string{"kubectl get pods -n {system} -o wide --field-selector spec.nodeName={node}"}},
	{Code: "HWS212", Reason: volumesv1alpha1.ReasonNodeStateTooLarge, Level: Problem, Depth: Root, Acts: OnNode,
		Says: "The node state is full, or the namespace has as much of it as is left for all others.",
		Way:  "Detach other volumes from the node first. The message says whether they must be of the namespace.",
		Run:  []string{"kubectl get vai -A --field-selector spec.nodeName={node}"}},
	{Code: "HWS213", Reason: volumesv1alpha1.ReasonLocksUnreadable, Level: Problem, Depth: Root, Acts: Cluster,
		Says: "The ConfigMap with the lock of this exclusive volume cannot be read.",
		Way:  "Repair it while no manager runs: docs/troubleshoot.md, \"Locks that cannot be read\".",
		Run:  []string{"kubectl get configmaps -n {system} -l volumes.hawser.io/exclusive-locks=true"}},
	{Code: "HWS214", Reason: volumesv1alpha1.ReasonAttachmentLost, Level: Waiting, Depth: Direct, Acts: Hawser,
		Says: "Another actor removed the attachment, or set it to not attached. The volume is attached again."},
	{Code: "HWS215", Reason: volumesv1alpha1.ReasonAttacherSilent, Level: Problem, Depth: Root, Acts: Storage,
		Says: "The driver's external-attacher has not touched the attachment for two minutes.",
		Way:  "Run the driver's external-attacher. If it runs, see in its log that it holds its Lease.",
		Run:  []string{"kubectl get volumeattachment {attachment} -o yaml", "kubectl get pods -A | grep -i attacher"}},
	{Code: "HWS216", Reason: volumesv1alpha1.ReasonTooManyUses, Level: Problem, Depth: Root, Acts: Author,
		Says: "The node carries out 256 intents of this volume, which is the most that it takes of one volume.",
		Way:  "Delete intents of the volume on this node. The oldest that waits continues as soon as another one is gone.",
		Run:  []string{"kubectl get vai -A --field-selector status.volumeName={volume},spec.nodeName={node}"}},
	{Code: "HWS219", Reason: volumesv1alpha1.ReasonNodeTainted, Level: Problem, Depth: Root, Acts: Cluster,
		Says: "The node has the taint node.kubernetes.io/out-of-service, so nothing new is attached to it.",
		Way:  "If the machine runs, remove the taint.",
		Run: []string{"kubectl hawser why node {node}",
			"kubectl taint node {node} node.kubernetes.io/out-of-service-   # only if the machine runs"}},
	{Code: "HWS220", Reason: volumesv1alpha1.ReasonNodeFenced, Level: Problem, Depth: Root, Acts: OnNode,
		Says: "The machine was fenced, and the manager has set the taint node.kubernetes.io/out-of-service. Nothing new is " +
			"attached to the node.",
		Way: "Start the machine, or have its fence lifted. The manager removes the taint once the agent has reported and " +
			"nothing of the old mounts is left. If the machine was replaced, delete the Node.",
		Run: []string{"kubectl hawser why node {node}"}},
}
