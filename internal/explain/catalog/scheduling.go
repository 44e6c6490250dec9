/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package catalog

// Reasons of what the walk finds about a pod before and after the scheduler has bound it.
const (
	PodUnscheduled    = "PodUnscheduled"
	PodAffinity       = "PodVolumeAffinity"
	PodUnboundClaims  = "PodUnboundClaims"
	PodVolumeLimit    = "PodVolumeLimit"
	PodGated          = "PodGated"
	PodSingleUser     = "PodReadWriteOncePod"
	PodNoStorage      = "PodNoStorage"
	PodPlacement      = "PodPlacementGate"
	PodContainers     = "PodContainersWait"
	PodMissingObject  = "PodObjectMissing"
	PodDeleting       = "PodDeleting"
	PodFailed         = "PodFailed"
	PodEphemeralClaim = "PodEphemeralClaim"
	PodWaits          = "PodWaits"
)

const describePod = "kubectl describe pod {pod} -n {namespace}"

// scheduling are about pods.
var scheduling = []Entry{
	{Code: "HWS601", Reason: PodUnscheduled, Level: Problem, Depth: Direct, Acts: Author,
		Says: "The scheduler finds no node for the pod.",
		Way:  "The message counts the nodes by what keeps the pod away.", Run: []string{describePod}},
	{Code: "HWS602", Reason: PodAffinity, Level: Problem, Depth: Root, Acts: Author,
		Says: "Nodes that the pod may use cannot use its volume: the volume's node affinity or zone excludes them.",
		Way:  "Let the pod run where the volume is, or use a volume of a StorageClass with WaitForFirstConsumer.",
		Run:  []string{"kubectl get pv {volume} -o jsonpath='{.spec.nodeAffinity}'", describePod}},
	{Code: "HWS603", Reason: PodUnboundClaims, Level: Problem, Depth: Symptom, Acts: Storage,
		Says: "The pod waits for a claim that is not bound.",
		Way:  "See the claim.", Run: []string{"kubectl get pvc -n {namespace}"}},
	{Code: "HWS604", Reason: PodVolumeLimit, Level: Problem, Depth: Root, Acts: OnNode,
		Says: "Nodes that the pod may use have as many volumes of the driver as they can take.",
		Way:  "Add a node, or move other pods away.", Run: []string{describePod},
		Instead: []Instead{{Object: "node {node}", State: Present,
			Way: "The pod may use this node only: end or move a pod there that uses a volume of the driver.",
			Run: []string{"kubectl get csinode {node} -o jsonpath='{.spec.drivers}'", agentLog}}}},
	{Code: "HWS605", Reason: PodGated, Level: Waiting, Depth: Direct, Acts: Author,
		Says: "A scheduling gate keeps the pod from the scheduler. The controller that set the gate removes it.",
		Run:  []string{"kubectl get pod {pod} -n {namespace} -o jsonpath='{.spec.schedulingGates}'"}},
	{Code: "HWS606", Reason: PodSingleUser, Level: Problem, Depth: Root, Acts: Holder,
		Says: "Another pod uses the claim, which allows one pod only (ReadWriteOncePod).",
		Way:  "Delete the other pod, or use a claim with another access mode.",
		Run:  []string{"kubectl describe pvc {claim} -n {namespace}"}},
	{Code: "HWS607", Reason: PodNoStorage, Level: Problem, Depth: Root, Acts: Storage,
		Says: "No node that the pod may use has a PersistentVolume, or the storage, for its claim.",
		Way:  "Add capacity or PersistentVolumes there.", Run: []string{describePod, "kubectl get csistoragecapacities -A"}},
	{Code: "HWS608", Reason: PodPlacement, Level: Waiting, Depth: Direct, Acts: Hawser,
		Says: "The pod waits until Hawser has restricted it to the nodes that can use its inline volumes.",
		Way:  "If it lasts, see the claims that the pod names, and whether a manager runs.",
		Run: []string{describePod,
			"kubectl get lease hawser-manager -n {system}"}},
	{Code: "HWS609", Reason: PodContainers, Level: Problem, Depth: Direct, Acts: Author,
		Says: "The volumes of the pod are not what it waits for: a container does not start.",
		Way:  "See the state of the containers.",
		Run:  []string{describePod, "kubectl logs {pod} -n {namespace} --all-containers"}},
	{Code: "HWS610", Reason: PodMissingObject, Level: Problem, Depth: Root, Acts: Author,
		Says: "A ConfigMap, a Secret or another object that a volume of the pod needs does not exist.",
		Way:  "Create it. The kubelet tries again within about two minutes.", Run: []string{describePod}},
	{Code: "HWS611", Reason: PodDeleting, Level: Waiting, Depth: Symptom, Acts: OnNode,
		Says: "The pod is being deleted. It goes once the kubelet of its node has stopped the containers and unmounted.",
		Way:  "If it lasts, see the node. A pod of a dead node stays until the node is out of service.",
		Instead: []Instead{{Object: "node {node}", State: Unset, Acts: Author,
			Way: "It is on no node. If it lasts, see what removes its finalizers.",
			Run: []string{"kubectl get pod {pod} -n {namespace} -o jsonpath='{.metadata.finalizers}'"}}},
		Run: []string{"kubectl hawser why node {node}"}},
	{Code: "HWS612", Reason: PodFailed, Level: Problem, Depth: Direct, Acts: Author,
		Says: "The pod has failed and is not started again.", Run: []string{describePod}},
	{Code: "HWS613", Reason: PodEphemeralClaim, Level: Waiting, Depth: Direct, Acts: Cluster,
		Says: "The claim of an ephemeral volume does not exist yet. The controller manager creates it.",
		Way: "If it lasts, the message or an event of the pod has what is refused, such as by a quota. Otherwise see that " +
			"kube-controller-manager runs.",
		Run: []string{describePod, "kubectl get resourcequotas -n {namespace}"}},
	{Code: "HWS614", Reason: PodWaits, Level: Problem, Depth: Symptom, Acts: OnNode,
		Says: "The pod does not run yet, and none of the objects that could be read shows a cause.",
		Way:  "The kubelet of the node reports within two minutes, as an event of the pod.",
		Instead: []Instead{{Object: "node {node}", State: Unset, Acts: Cluster,
			Way: "No scheduler has handled the pod yet. See that one runs under the name that the pod has.",
			Run: []string{describePod, "kubectl get pod {pod} -n {namespace} -o jsonpath='{.spec.schedulerName}'"}}},
		Run: []string{describePod, "kubectl hawser why node {node}"}},
}
