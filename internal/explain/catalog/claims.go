/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package catalog

// Reasons of what the walk finds about claims and PersistentVolumes.
const (
	ClassUnset          = "ClaimWithoutClass"
	ClassMissing        = "StorageClassMissing"
	ProvisioningFailed  = "ProvisioningFailed"
	WaitsForProvisioner = "WaitsForProvisioner"
	WaitsForPod         = "ClaimWaitsForPod"
	ClaimFinalizer      = "ClaimDeletionWaits"
	ResizeInfeasible    = "ResizeInfeasible"
	ResizePending       = "ResizePending"
	VolumeFailed        = "VolumeFailed"
	VolumeReleased      = "VolumeReleased"
	VolumeDeleting      = "VolumeDeleting"
	ClaimUnused         = "ClaimUnused"
	CountedUnused       = "ClaimCountedUnused"
)

// EndPods names pods, of which there are few.
const EndPods = "kubectl delete pod {pods} -n {namespace}   # only if it may end"

const describeClaim = "kubectl describe pvc {claim} -n {namespace}"

// claims are about claims and PersistentVolumes.
var claims = []Entry{
	{Code: "HWS621", Reason: ClassUnset, Level: Problem, Depth: Root, Acts: Author,
		Says: "The claim names no StorageClass, no PersistentVolume fits it, and nothing makes one.",
		Way:  "Name a StorageClass, or mark one as the default.",
		Run:  []string{"kubectl get storageclass", describeClaim}},
	{Code: "HWS622", Reason: ClassMissing, Level: Problem, Depth: Root, Acts: Author,
		Says: "The StorageClass of the claim does not exist.",
		Way:  "Create it, or create the claim again with another one.", Run: []string{"kubectl get storageclass"}},
	{Code: "HWS623", Reason: ProvisioningFailed, Level: Problem, Depth: Root, Acts: Storage,
		Says: "The driver failed to make a volume for the claim. The provisioner tries again.",
		Way:  "The event names the cause.", Run: []string{describeClaim}},
	{Code: "HWS624", Reason: WaitsForProvisioner, Level: Waiting, Depth: Direct, Acts: Driver,
		Says: "The claim waits for the provisioner of its StorageClass.",
		Way:  "If it lasts, see whether that provisioner runs.",
		Run:  []string{"kubectl get storageclass {class} -o jsonpath='{.provisioner}'", describeClaim}},
	{Code: "HWS625", Reason: WaitsForPod, Level: Waiting, Depth: Direct, Acts: Author,
		Says:      "The volume is made once a pod or an intent uses the claim: its class has WaitForFirstConsumer.",
		SaysAlone: "The volume is made once a pod uses the claim: its class has WaitForFirstConsumer.",
		Way:       "Create a pod or an intent that uses it.",
		WayAlone:  "Create a pod that uses it.", Run: []string{describeClaim}},
	{Code: "HWS626", Reason: ClaimFinalizer, Level: Waiting, Depth: Direct, Acts: Author,
		Says:      "The claim is being deleted and waits for the pods and intents that use it.",
		SaysAlone: "The claim is being deleted and waits for the pods that use it.",
		Way:       "Delete the pods and intents that use it.",
		WayAlone:  "Delete the pods that use it.", Data: true,
		Run: []string{EndPods, describeClaim, "kubectl get vai -n {namespace}"},
		Instead: []Instead{
			{Object: Users, State: Deleting,
				Way: "The pods and intents that use it are being deleted already. If it lasts, see what they " +
					"wait for.",
				WayAlone: "The pods that use it are being deleted already. If it lasts, see what they wait for."},
			{Object: Users, State: Gone, Acts: Cluster,
				Way:      "No pod and no intent uses it any more. If it lasts, see what removes its finalizers.",
				WayAlone: "No pod uses it any more. If it lasts, see what removes its finalizers.",
				Run:      []string{"kubectl get pvc {claim} -n {namespace} -o jsonpath='{.metadata.finalizers}'"}},
		}},
	{Code: "HWS627", Reason: ResizeInfeasible, Level: Problem, Depth: Direct, Acts: Author,
		Says: "The driver cannot expand the volume to the size that the claim asks for. The volume stays usable.",
		Way:  "Ask for another size in the claim.", Run: []string{describeClaim}},
	{Code: "HWS628", Reason: ResizePending, Level: Waiting, Depth: Direct, Acts: Driver,
		Says: "The volume is being expanded. The last part of that happens on a node that uses it.",
		Run:  []string{describeClaim}},
	{Code: "HWS629", Reason: VolumeFailed, Level: Problem, Depth: Root, Acts: Storage,
		Says: "The PersistentVolume has failed: it could not be deleted or recycled.",
		Run:  []string{"kubectl describe pv {volume}"}},
	{Code: "HWS630", Reason: VolumeReleased, Level: Problem, Depth: Direct, Acts: Storage,
		Says: "The claim of the PersistentVolume is gone, and no other claim may use the volume.",
		Way:  "Save the data, then delete the PersistentVolume, or remove its claimRef to let another claim use it.",
		Run:  []string{"kubectl get pv {volume} -o jsonpath='{.spec.claimRef}'"}},
	{Code: "HWS631", Reason: VolumeDeleting, Level: Waiting, Depth: Direct, Acts: Author,
		Says: "The PersistentVolume is being deleted. It stays until its claim and its attachments are gone.",
		Way: "A deletion cannot be undone. Copy the data if it is needed, then delete the intents and pods that " +
			"use the volume, and the claim.",
		WayAlone: "A deletion cannot be undone. Copy the data if it is needed, then delete the pods that use " +
			"the volume, and the claim.",
		Instead: []Instead{
			{Object: Users, State: Deleting, Way: "What uses the volume is being deleted already. Delete the claim, too."},
			{Object: "pvc {claim}", State: Gone, Acts: Driver,
				Way: "The claim is gone. The driver deletes the volume once no intent uses it and it is " +
					"detached.",
				WayAlone: "The claim is gone. The driver deletes the volume once it is detached."},
			{Object: "pvc {claim}", State: Deleting,
				Way:      "The claim is being deleted, too. Delete the intents and pods that use the volume.",
				WayAlone: "The claim is being deleted, too. Delete the pods that use the volume."}},
		Run: []string{"kubectl get pv {volume} -o jsonpath='{.metadata.finalizers}'", "kubectl hawser why pv {volume}",
			describeClaim}},
	{Code: "HWS632", Reason: ClaimUnused, Level: Note, Depth: Direct,
		Says:      "No pod and no intent uses the claim now.",
		SaysAlone: "No pod uses the claim now."},
	{Code: "HWS633", Reason: CountedUnused, Level: Note, Depth: Direct, Acts: Author,
		Says: "Intents use the claim, and its condition Unused is True. A program that cleans up may delete it.",
		Way: "Exclude it there. To have its deletion refused while intents use it, set the label " +
			"volumes.hawser.io/refuse-claim-deletion=true on the claim or its namespace.",
		Run: []string{"kubectl label pvc {claim} -n {namespace} volumes.hawser.io/refuse-claim-deletion=true"}},
}
