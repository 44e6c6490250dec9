/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package catalog

// Reasons of what would be in the way of an installation.
const (
	KubernetesTooOld    = "KubernetesTooOld"
	KubernetesNotTested = "KubernetesNotTested"
	KindsNotServed      = "KindsNotServed"
	NoMutatingPolicies  = "MutatingPoliciesNotServed"
	GroupsUnavailable   = "APIGroupsUnavailable"
	PoliciesRefused     = "PoliciesRefused"
	PoliciesDisabled    = "PoliciesDisabled"
	PrivilegedRefused   = "PrivilegedPodsRefused"
	NamespaceRestricted = "NamespaceRestrictsPods"
	NamespaceRefused    = "NamespaceRefused"
	RightsMissing       = "RightsMissing"
	RightsUncertain     = "RightsUncertain"
	APIServerPort       = "APIServerPortNotAllowed"
	HostPortTaken       = "HostPortTaken"
	KubeletDirectory    = "KubeletDirectoryDiffers"
	AttachDetachOff     = "AttachDetachControllerOff"
	KubeletAttaches     = "KubeletAttaches"
	SELinuxLimits       = "SELinuxLimits"
	DriverLimits        = "DriverAsksForMore"
	AttacherNotSeen     = "AttacherNotSeen"
	NoDrivers           = "NoCSIDrivers"
	AgentsOnNoNode      = "NoLinuxNodes"
)

const supported = "docs/install.md lists the versions of Kubernetes."

// preflight are what `kubectl hawser preflight` finds. A problem blocks the installation, a note is a warning.
var preflight = []Entry{
	{Code: "HWS941", Reason: KubernetesTooOld, Level: Problem, Depth: Root, Acts: Cluster,
		Says: "The API server is older than what this release of Hawser supports.",
		Way:  "Upgrade the control plane first. " + supported},
	{Code: "HWS942", Reason: KubernetesNotTested, Level: Note, Depth: Direct, Acts: Cluster,
		Says: "The API server is newer than what this release of Hawser was tested with.",
		Way:  "See whether a newer release of Hawser names this version. " + supported},
	{Code: "HWS943", Reason: KindsNotServed, Level: Problem, Depth: Root, Acts: Cluster,
		Says: "The API server does not serve kinds that Hawser needs.",
		Way:  "See whether --runtime-config of kube-apiserver turns their versions off."},
	{Code: "HWS944", Reason: NoMutatingPolicies, Level: Note, Depth: Direct, Acts: Cluster,
		Says: "The API server does not serve MutatingAdmissionPolicy v1, as before Kubernetes 1.36.",
		Way: "config/default installs without it. config/standalone needs the component config/kubernetes-1.35. Authors " +
			"of pods with inline volumes set the scheduling gate themselves: docs/install.md, \"Versions of Kubernetes\"."},
	{Code: "HWS945", Reason: GroupsUnavailable, Level: Note, Depth: Direct, Acts: Cluster,
		Says: "The API server cannot reach the servers of some API groups. No deletion of a namespace ends meanwhile.",
		Way:  "Repair their servers, or delete their APIService objects.",
		Run:  []string{"kubectl get apiservices"}},
	{Code: "HWS946", Reason: PoliciesRefused, Level: Problem, Depth: Root, Acts: Cluster,
		Says: "The API server refuses admission policies of Hawser in a dry run. Without them Hawser attaches nothing.",
		Way: "The message names the cause: an expression that this version does not know, or a policy or webhook of a " +
			"file of kube-apiserver (staticManifestsDir), as no other applies to policies. Exempt Hawser's policies there.",
		Run: []string{"kubectl get pods -n kube-system -l tier=control-plane -o yaml | " +
			"grep -e --admission-control-config-file"}},
	{Code: "HWS947", Reason: PoliciesDisabled, Level: Problem, Depth: Root, Acts: Cluster,
		Says: "kube-apiserver runs without an admission plugin that Hawser's policies need.",
		Way:  "Take the plugin out of --disable-admission-plugins of every kube-apiserver.",
		Run:  []string{"kubectl get pod {pod} -n {namespace} -o jsonpath='{.spec.containers[0].command}'"}},
	{Code: "HWS948", Reason: PrivilegedRefused, Level: Problem, Depth: Root, Acts: Cluster,
		Says: "The API server refuses a privileged pod in Hawser's namespace. The agents are privileged: they mount.",
		Way:  "The message names what refuses it. Exempt Hawser's namespace there.",
		Run:  []string{"kubectl get validatingwebhookconfigurations,validatingadmissionpolicies"}},
	{Code: "HWS949", Reason: NamespaceRestricted, Level: Note, Depth: Direct, Acts: Cluster,
		Says: "Pod Security refuses privileged pods in Hawser's namespace, as long as its label is as it is.",
		Way: "An overlay that contains the namespace sets the label. For OLM, or where the overlay leaves the " +
			"namespace out, set it before.",
		Run: []string{"kubectl label namespace {system} pod-security.kubernetes.io/enforce=privileged --overwrite"}},
	{Code: "HWS950", Reason: NamespaceRefused, Level: Problem, Depth: Root, Acts: Cluster,
		Says: "The API server refuses, in a dry run, the namespace of Hawser with the label for privileged pods.",
		Way: "The message names what refuses it. Exempt Hawser's namespace there, or let an account that it admits create " +
			"the namespace.",
		Run: []string{"kubectl get validatingwebhookconfigurations,validatingadmissionpolicies"}},
	{Code: "HWS951", Reason: RightsMissing, Level: Problem, Depth: Root, Acts: Cluster,
		Says: "You may not create what config/default contains.",
		Way:  "Let a cluster administrator install Hawser, as a rule an account with the role cluster-admin."},
	{Code: "HWS952", Reason: RightsUncertain, Level: Note, Depth: Direct, Acts: Cluster,
		Says: "You may not grant rights that you do not have yourself (escalate, bind). The API server refuses the " +
			"operator's roles, unless you have every right in them.",
		Way: "Let a cluster administrator install Hawser, or try it in a dry run. If that prints nothing, you have the " +
			"rights: an error about a namespace that is not found only means that Hawser's does not exist yet.",
		Run: []string{"kubectl apply -k . --dry-run=server 2>&1 | grep 'attempting to grant'   " +
			"# the overlay with your images"}},
	{Code: "HWS953", Reason: APIServerPort, Level: Note, Depth: Direct, Acts: Cluster,
		Says: "The API server listens on a port that Hawser's NetworkPolicy does not allow to the manager.",
		Way:  "Set networkPolicy: None in INITIAL_SPEC, or add the port to the component config/networkpolicy."},
	{Code: "HWS954", Reason: HostPortTaken, Level: Note, Depth: Direct, Acts: Cluster,
		Says: "Another workload uses a port of the host that the agents use.",
		Way: "If it runs on nodes with an agent, set agent.metricsPort or agent.healthPort in INITIAL_SPEC to a free port. " +
			"An agent whose port is taken does not start.",
		Run: []string{"kubectl get pods -A -o wide --field-selector spec.hostNetwork=true"}},
	{Code: "HWS955", Reason: KubeletDirectory, Level: Note, Depth: Direct, Acts: Cluster,
		Says: "The kubelet's directory is not /var/lib/kubelet, as far as objects show.",
		Way: "Set kubeletRoot in INITIAL_SPEC to the value of --root-dir of the kubelets, by the name that they have for " +
			"it. A symbolic link of that name may stay."},
	{Code: "HWS956", Reason: AttachDetachOff, Level: Note, Depth: Direct, Acts: Cluster,
		Says: "kube-controller-manager runs without the attach/detach controller. In attach mode Coexist nothing attaches " +
			"volumes for pods.",
		Way: "Turn the controller on, or set attachMode: Replace in INITIAL_SPEC: docs/attach-modes.md.",
		Run: []string{"kubectl get pods -n kube-system -l tier=control-plane -o yaml | grep -e --controllers"}},
	{Code: "HWS957", Reason: KubeletAttaches, Level: Note, Depth: Direct, Acts: OnNode,
		Says: "The kubelet of the node does not leave attaching to a controller: its Node lacks the annotation " +
			"volumes.kubernetes.io/controller-managed-attach-detach.",
		Way: "Set enableControllerAttachDetach: true in the configuration of the kubelet. Neither mode attaches " +
			"volumes for " +
			"the pods of such a node.",
		Run: []string{"kubectl get node {node} -o jsonpath='{.metadata.annotations}'"}},
	{Code: "HWS958", Reason: SELinuxLimits, Level: Note, Depth: Direct, Acts: Storage,
		Says: "Nodes have an OS image with SELinux, as a rule, and CSIDrivers have seLinuxMount. On a node with SELinux " +
			"a filesystem of such a driver is mounted with one label, and pods with another cannot use it.",
		Way: "Set mount.seLinuxOptions in intents, with the level of the pods that use the same volumes. An intent without " +
			"them has the volume mounted without a label.",
		Run: []string{"kubectl get csidrivers -o custom-columns=NAME:.metadata.name,SELINUXMOUNT:.spec.seLinuxMount"}},
	{Code: "HWS959", Reason: DriverLimits, Level: Note, Depth: Direct, Acts: Storage,
		Says: "The CSIDriver asks for more than Hawser gives for an intent.",
		Way: "Use volumes of this driver in pods through claims. Try an intent before you rely on it: the driver may " +
			"refuse " +
			"to publish, or may publish with less.",
		Run: []string{"kubectl get csidriver {driver} -o yaml"}},
	{Code: "HWS960", Reason: AttacherNotSeen, Level: Note, Depth: Direct, Acts: Storage,
		Says: "No external-attacher of the driver was seen. Hawser attaches through it.",
		Way:  "See that the controller of the driver runs, with external-attacher in it.",
		Run:  []string{"kubectl get leases -A | grep external-attacher-leader"}},
	{Code: "HWS961", Reason: NoDrivers, Level: Note, Depth: Direct, Acts: Storage,
		Says: "The cluster has no CSI driver. Hawser brings none, and attaches and mounts only what one serves.",
		Way:  "Install the driver of your storage, with its external-attacher and node plugin.",
		Run:  []string{"kubectl get csidrivers,csinodes"}},
	{Code: "HWS962", Reason: AgentsOnNoNode, Level: Problem, Depth: Root, Acts: Cluster,
		Says: "No node runs Linux and can have an agent.",
		Way:  "Add a node with Linux that is neither Fargate nor a virtual kubelet.",
		Run:  []string{"kubectl get nodes -L kubernetes.io/os,type,eks.amazonaws.com/compute-type"}},
}
