/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package catalog

// Reasons of what only a comparison of all objects of a cluster shows.
const (
	AttachmentUnused      = "AttachmentUnused"
	KubeletKeepsVolume    = "KubeletKeepsVolume"
	AttachmentNodeGone    = "AttachmentNodeGone"
	AttachmentVolumeGone  = "AttachmentVolumeGone"
	FinalizerStays        = "FinalizerStays"
	ExclusiveTwice        = "ExclusiveAttachedTwice"
	TaintOnReadyNode      = "TaintOnReadyNode"
	LimitUnknown          = "NodeLimitUnknown"
	AttachmentsNotHandled = "AttachmentsNotHandled"
	DriverContradicted    = "CSIDriverContradicted"
	HandleShared          = "VolumeHandleShared"
	ResizeFailed          = "ResizeFailed"
	NodeResizeFailed      = "NodeResizeFailed"
	ResizeUnanswered      = "ResizeUnanswered"
	SELinuxConflict       = "SELinuxLabelsConflict"
	RestoreWaits          = "RestoreWaitsForAgents"
)

const showAttachment = "kubectl get volumeattachment {attachment} -o yaml"

// cluster are what `kubectl hawser doctor` finds, beside what other entries describe.
var cluster = []Entry{
	{Code: "HWS921", Reason: AttachmentUnused, Level: Problem, Depth: Root, Acts: Cluster,
		Says:      "The volume is attached to the node, and no pod and no intent uses it there.",
		SaysAlone: "The volume is attached to the node, and no pod uses it there.",
		Way: "The attach/detach controller detaches it within seconds, as a rule. See that it runs. If it does not know " +
			"the attachment, delete it.",
		Run: []string{showAttachment,
			"kubectl delete volumeattachment {attachment}   # only if nothing on the node has the volume mounted"}},
	{Code: "HWS922", Reason: KubeletKeepsVolume, Level: Problem, Depth: Root, Acts: OnNode,
		Says: "No pod uses the volume on the node, and its kubelet reports it as in use: it cannot unmount the volume.",
		Way:  "The log of the kubelet names the volume and what keeps it. The volume is detached once it is unmounted.",
		Run:  []string{"kubectl get node {node} -o jsonpath='{.status.volumesInUse}'", agentLog}},
	{Code: "HWS923", Reason: AttachmentNodeGone, Level: Problem, Depth: Chief, Acts: Cluster,
		Says: "The node of the attachment does not exist any more.",
		Way: "Kubernetes detaches its volumes by force some minutes after the Node is gone. If it does not, make sure that " +
			"the machine is off, and delete the attachment.",
		Instead: []Instead{{Object: "volumeattachment {attachment}", State: Held,
			Way: "Hawser keeps the attachment for intents on that node, and refuses its deletion. Make sure that the machine " +
				"is off, and delete these intents. Hawser detaches the volume once there is evidence that the machine is off. " +
				"Where an intent has a detachPolicy, time alone is such evidence, and may have passed already.",
			WayAlone: "Hawser has kept the attachment. Make sure that the machine is off, and delete the attachment.",
			Run: []string{"kubectl get vai -A --field-selector spec.nodeName={node}", "kubectl hawser plan fence {node}",
				showAttachment}}},
		Run: []string{showAttachment,
			"kubectl delete volumeattachment {attachment}   # only if the machine is off"}},
	{Code: "HWS924", Reason: AttachmentVolumeGone, Level: Problem, Depth: Chief, Acts: Storage,
		Says: "The PersistentVolume of the attachment does not exist any more. Its attacher needs that to detach the volume.",
		Way: "Make sure that nothing on the node has the volume mounted. Then see in the storage system whether it is " +
			"attached still, and detach it there. Delete the attachment, and remove the finalizer of its attacher, that one " +
			"alone.",
		Instead: []Instead{{Object: "volumeattachment {attachment}", State: Held,
			Way: "Hawser keeps the attachment for intents on that node, which may have the volume mounted. Delete these " +
				"intents, and wait until the node does not report the volume as in use. Only then may it be detached in the " +
				"storage system.",
			WayAlone: "Hawser has kept the attachment. Make sure that nothing on the node has the volume mounted, before it " +
				"is detached in the storage system.",
			Run: []string{"kubectl get vai -A --field-selector spec.nodeName={node}", "kubectl hawser why node {node}",
				showAttachment}}},
		Run: []string{showAttachment}},
	{Code: "HWS925", Reason: FinalizerStays, Level: Problem, Depth: Root, Acts: Storage,
		Says: "The attachment is being deleted, and no program is known that would remove its finalizer.",
		Way: "Bring the driver and its external-attacher back. If they are gone for good, make sure that the storage " +
			"system does not list the volume as attached, and remove the finalizer of the attacher, that one alone. Others " +
			"have a meaning of their own.",
		Run: []string{showAttachment, "kubectl patch volumeattachment {attachment} --type=json " +
			"-p '[{\"op\":\"test\",\"path\":\"/metadata/finalizers/{index}\",\"value\":\"{finalizer}\"}," +
			"{\"op\":\"remove\",\"path\":\"/metadata/finalizers/{index}\"}]'" +
			"   # only if the storage does not list it as attached"}},
	{Code: "HWS926", Reason: ExclusiveTwice, Level: Problem, Depth: Root, Acts: Holder,
		Says: "The volume may be used on one node only, and it is attached to several nodes. Two writers destroy its data.",
		Way:  "End the use on all nodes but one.",
		Run:  []string{"kubectl hawser why pv {volume}"}},
	{Code: "HWS927", Reason: TaintOnReadyNode, Level: Problem, Depth: Root, Acts: Cluster,
		Says: "The node is Ready and has the taint node.kubernetes.io/out-of-service. Kubernetes detaches volumes there at " +
			"once, in use or not.",
		Way: "If the machine runs, remove the taint.",
		Run: []string{"kubectl taint node {node} node.kubernetes.io/out-of-service-   # only if the machine runs"}},
	{Code: "HWS928", Reason: LimitUnknown, Level: Problem, Depth: Root, Acts: Storage,
		Says: "The CSINode has no limit for the driver, so the scheduler places any number of its volumes on the node.",
		Way:  "Let the driver's node plugin report max_volumes_per_node, as a rule by a flag of it.",
		Run:  []string{"kubectl get csinode {node} -o jsonpath='{.spec.drivers}'"}},
	{Code: "HWS929", Reason: AttachmentsNotHandled, Level: Problem, Depth: Root, Acts: Storage,
		Says: "The CSIDriver has attachRequired false, and there are attachments of the driver. Kubernetes ignores them.",
		Way: "The field cannot be changed. If the driver attaches, delete the CSIDriver and create it with attachRequired " +
			"true. Otherwise delete the attachments.",
		Run: []string{"kubectl get csidriver {driver} -o jsonpath='{.spec.attachRequired}'", showAttachment}},
	{Code: "HWS930", Reason: DriverContradicted, Level: Problem, Depth: Root, Acts: Storage,
		Says: "The CSIDriver does not agree with the PersistentVolumes of the driver, so that pods cannot mount them.",
		Way:  "The message names the field. Correct it, or the PersistentVolume.",
		Run:  []string{"kubectl get csidriver {driver} -o yaml", "kubectl get pv {volume} -o yaml"}},
	{Code: "HWS931", Reason: HandleShared, Level: Problem, Depth: Root, Acts: Storage,
		Says: "Several PersistentVolumes have one volumeHandle of the driver, so they are one volume with several owners.",
		Way: "A kubelet mounts only one of them on a node, and no lock protects exclusive ones. Before you delete one, set " +
			"its reclaim policy to Retain, or the driver deletes the data of all.",
		Run: []string{"kubectl get pv {volumes}"}},
	{Code: "HWS932", Reason: ResizeFailed, Level: Problem, Depth: Root, Acts: Storage,
		Says: "The expansion of the claim fails, and is tried again. The volume stays usable at its present size.",
		Way: "The message has the driver's error: repair what it names. Asking for less in the claim does not help: this " +
			"size is tried until it succeeds, or until the driver answers that it is not possible.",
		Run: []string{describeClaim}},
	{Code: "HWS933", Reason: ResizeUnanswered, Level: Problem, Depth: Root, Acts: Storage,
		Says: "The claim asks for more than it has, and nothing has begun to expand it.",
		Way:  "Run the external-resizer of the driver, and let the StorageClass allow expansion.",
		Run:  []string{describeClaim, "kubectl get storageclass {class} -o jsonpath='{.allowVolumeExpansion}'"}},
	{Code: "HWS934", Reason: SELinuxConflict, Level: Problem, Depth: Root, Acts: Author,
		Says: "Two pods on one node use a volume with different SELinux labels. The driver mounts it with one label only.",
		Way: "Give both pods one label in seLinuxOptions, let them run on different nodes, or set seLinuxChangePolicy " +
			"Recursive in both.",
		Run: []string{"kubectl get pod {pod} -n {namespace} -o jsonpath='{.spec..seLinuxOptions}'"}},
	{Code: "HWS935", Reason: RestoreWaits, Level: Problem, Depth: Root, Acts: Cluster,
		Says: "The API server was restored from a backup, and agents are silent. No agent takes a volume into use before " +
			"they are heard.",
		Way: "Bring the silent agents back. For machines that never come back, docs/operate.md, \"Restoring etcd\", has " +
			"how they are left out.",
		Run: []string{"kubectl hawser why node {node}",
			"kubectl get events -A --field-selector reason=WaitingForAgents"}},
	{Code: "HWS936", Reason: NodeResizeFailed, Level: Problem, Depth: Root, Acts: Storage,
		Says: "The storage has expanded the volume, and the node fails to expand the filesystem on it. That is tried again.",
		Way: "The message has the error of the driver's node plugin: repair what it names. Do not end the pods that use " +
			"the volume before that: it may not be mounted again.",
		Run: []string{describeClaim}},
}
