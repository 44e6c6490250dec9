/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package catalog

// Reasons of what the walk finds about attachments, mounts and nodes that upstream manages.
const (
	MultiAttach       = "MultiAttach"
	AttachPending     = "AttachPending"
	DetachPending     = "DetachPending"
	AttachmentMissing = "AttachmentMissing"
	CSINodeMissing    = "CSINodeMissing"
	MountFailed       = "MountFailed"
	MountWaits        = "MountWaits"
	NodeNotReady      = "NodeNotReady"
	OutOfService      = "NodeOutOfService"
	Cordoned          = "NodeUnschedulable"
	HeldElsewhere     = "AttachedElsewhere"
	AttachEvent       = "AttachEvent"
	KubeletSilent     = "KubeletSilent"
	CallTimedOut      = "DriverCallTimedOut"
	OtherAttachment   = "AttachmentOfAnotherVolume"
	AttachmentHeld    = "AttachmentHeld"
	OtherFinalizer    = "FinalizerOfAnotherProgram"
)

// upstream are about what Kubernetes' own controllers and kubelets do.
var upstream = []Entry{
	{Code: "HWS701", Reason: MultiAttach, Level: Problem, Depth: Symptom, Acts: Holder,
		Says: "The volume may be used on one node only, and it is attached to another node.",
		Way: "Delete the pod or intent that uses it there. If that node is dead, its own report has the way " +
			"out.",
		WayAlone: "Delete the pod that uses it there. If that node is dead, its own report has the way out.",
		Instead:  []Instead{letGo},
		Run:      []string{describeClaim, "kubectl get vai -A --field-selector status.volumeName={volume}"}},
	{Code: "HWS702", Reason: AttachEvent, Level: Problem, Depth: Direct, Acts: Storage,
		Says: "The volume cannot be attached to the node. The controller tries again.",
		Way:  "The event names the cause.", Run: []string{"kubectl describe pod {pod} -n {namespace}"}},
	{Code: "HWS703", Reason: AttachPending, Level: Waiting, Depth: Direct, Acts: Driver,
		Says: "The attachment exists and the driver's attacher has not answered yet.",
		Way:  "If it lasts for more than some seconds, the attacher of the driver does not run or hangs.",
		Run: []string{"kubectl get volumeattachment {attachment} -o yaml",
			"kubectl get pods -A | grep -i -e attacher -e csi   # the controller of driver {driver}"}},
	{Code: "HWS704", Reason: DetachPending, Level: Waiting, Depth: Direct, Acts: Driver,
		Says: "The attachment is being deleted, and the driver's attacher has not detached the volume yet.",
		Way:  "If it lasts, the attacher of the driver does not run or hangs.",
		Run: []string{"kubectl get volumeattachment {attachment} -o yaml",
			"kubectl get pods -A | grep -i -e attacher -e csi   # the controller of driver {driver}"}},
	{Code: "HWS705", Reason: AttachmentMissing, Level: Waiting, Depth: Symptom, Acts: Cluster,
		Says: "No VolumeAttachment exists yet for the volume on this node.",
		Way:  "If it lasts, the attach/detach controller does not run, or an event of the pod names the cause.",
		Run: []string{"kubectl describe pod {pod} -n {namespace}",
			"kubectl get pods -n kube-system -l component=kube-controller-manager"}},
	{Code: "HWS706", Reason: CSINodeMissing, Level: Problem, Depth: Root, Acts: OnNode,
		Says: "The node has no CSINode object: its kubelet has registered no CSI driver yet.",
		Way:  "Run the driver's node plugin on that node.",
		Run:  []string{"kubectl get csinodes", agentLog}},
	{Code: "HWS707", Reason: MountFailed, Level: Problem, Depth: Root, Acts: Storage,
		Says: "The kubelet failed to mount or map the volume. It tries again.",
		Way:  "The event has the driver's error. The log of its node plugin on that node has more.",
		Run:  []string{"kubectl describe pod {pod} -n {namespace}", agentLog}},
	{Code: "HWS708", Reason: MountWaits, Level: Problem, Depth: Symptom, Acts: OnNode,
		Says: "The kubelet waits for a volume of the pod.",
		Way:  "Another finding has the cause, as a rule. If there is none and it lasts, read the log of the kubelet.",
		Run:  []string{"kubectl describe pod {pod} -n {namespace}"}},
	{Code: "HWS709", Reason: NodeNotReady, Level: Problem, Depth: Root, Acts: OnNode,
		Says: "The kubelet of the node is not Ready: nothing is mounted or unmounted there.",
		Way:  "Repair the node.", Off: "node",
		Run: []string{"kubectl describe node {node}"}},
	{Code: "HWS710", Reason: KubeletSilent, Level: Problem, Depth: Root, Acts: OnNode,
		Says: "The kubelet of the node does not report: the machine, its kubelet or the network is down.",
		Way:  "Repair the node.", Off: "node",
		Run: []string{"kubectl describe node {node}"}},
	{Code: "HWS711", Reason: OutOfService, Level: Note, Depth: Direct, Acts: Cluster,
		Says: "The node has the taint node.kubernetes.io/out-of-service: volumes are detached from it by force, and " +
			"nothing new is attached.",
		Way: "Remove the taint once the machine is back.",
		Run: []string{"kubectl taint node {node} node.kubernetes.io/out-of-service-"}},
	{Code: "HWS712", Reason: Cordoned, Level: Note, Depth: Direct, Acts: OnNode,
		Says: "The node takes no new pods: it is cordoned.", Run: []string{"kubectl uncordon {node}"}},
	{Code: "HWS713", Reason: HeldElsewhere, Level: Problem, Depth: Direct, Acts: Holder,
		Says:     "The volume may be used on one node only, and it is attached to another node.",
		Way:      "Delete the pod or intent that uses it there. It is detached once that node has released it.",
		WayAlone: "Delete the pod that uses it there. It is detached once that node has released it.",
		Instead:  []Instead{letGo},
		Run: []string{EndPods, "kubectl get pods -A -o wide --field-selector spec.nodeName={holder}",
			"kubectl get vai -A --field-selector status.volumeName={volume}"}},
	{Code: "HWS715", Reason: CallTimedOut, Level: Problem, Depth: Root, Acts: Storage,
		Says: "A call to the driver's node plugin does not return: the plugin or its storage hangs.",
		Way:  "Read the log of the node plugin on that node. See whether the storage can be reached from there.",
		Run:  []string{agentLog}},
	{Code: "HWS716", Reason: OtherAttachment, Level: Problem, Depth: Root, Acts: Holder,
		Says: "The attachment to the node is for another PersistentVolume with the same driver and handle.",
		Way: "Hawser replaces it for an intent if it was never attached and nothing names that volume. " +
			"Otherwise delete the pods and intents that use that volume on the node. If the attachment stays though nothing " +
			"uses it there, delete the attachment.",
		Instead: []Instead{{Object: Installation, State: Gone,
			Way: "Delete the pods that use that volume on the node. If the attachment stays though nothing uses it there, " +
				"delete the attachment."}},
		Run: []string{"kubectl get volumeattachment {attachment} -o yaml",
			"kubectl get vai -A --field-selector spec.nodeName={node}"}},
	{Code: "HWS717", Reason: AttachmentHeld, Level: Problem, Depth: Direct, Acts: Hawser,
		Says: "No pod and no intent uses the volume on the node, and Hawser keeps it attached: it is not released yet.",
		Way:  "The agent of the node releases it, and the manager detaches it then. If it lasts, the node has the cause.",
		Run:  []string{"kubectl hawser why node {node}"}},
	{Code: "HWS718", Reason: OtherFinalizer, Level: Waiting, Depth: Root, Acts: Cluster,
		Says: "The attachment is being deleted, and waits for a finalizer that is not that of an attacher.",
		Way:  "The name of the finalizer leads to the program that removes it. See that it runs.",
		Run:  []string{"kubectl get volumeattachment {attachment} -o yaml"}},
}
