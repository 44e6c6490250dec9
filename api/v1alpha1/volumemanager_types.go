/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// VolumeManagerName is the name of the only VolumeManager of a cluster.
const VolumeManagerName = "cluster"

// AttachMode is who attaches the volumes of pods.
// +kubebuilder:validation:Enum=Coexist;Replace
type AttachMode string

const (
	// AttachCoexist leaves pods to upstream's attach/detach controller.
	AttachCoexist AttachMode = "Coexist"
	// AttachReplace attaches for pods. Upstream's controller must be off.
	AttachReplace AttachMode = "Replace"
)

// PodIntents is whether the manager writes intents for the volumes of pods.
// +kubebuilder:validation:Enum=Auto;Always;Never
type PodIntents string

const (
	// PodIntentsAuto writes them in attach mode Replace only.
	PodIntentsAuto PodIntents = "Auto"
	// PodIntentsAlways writes them in both modes. In Coexist they only show what upstream does.
	PodIntentsAlways PodIntents = "Always"
	// PodIntentsNever writes none.
	PodIntentsNever PodIntents = "Never"
)

// LogLevel is how much manager and agents log.
// +kubebuilder:validation:Enum=Error;Info;Debug
type LogLevel string

// Log levels, from the least to the most.
const (
	LogError LogLevel = "Error"
	LogInfo  LogLevel = "Info"
	LogDebug LogLevel = "Debug"
)

// Management is whether the operator manages a part of the installation.
// +kubebuilder:validation:Enum=Managed;None
type Management string

const (
	// Managed parts are applied, and put back when they drift.
	Managed Management = "Managed"
	// ManagedNone leaves the part out.
	ManagedNone Management = "None"
)

// Removal is what happens to volumes in use when the VolumeManager is deleted.
// +kubebuilder:validation:Enum=Refuse;Drain
type Removal string

const (
	// RemovalRefuse refuses the deletion while a volume is in use.
	RemovalRefuse Removal = "Refuse"
	// RemovalDrain releases every volume first.
	RemovalDrain Removal = "Drain"
)

// DetachDefaults are about detaching without the report of an agent.
type DetachDefaults struct {
	// podForceDetachAfter is the detachPolicy.forceAfter of the intents that the manager writes for pods, from 1m to
	// 720h. Absent: time alone never detaches. Warning: data that the node had not yet written is lost.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self != '' && self.matches('^([0-9]{1,5}h)?([0-9]{1,5}m)?([0-9]{1,5}([.][0-9]{1,9})?s)?$') && duration(self) >= duration('1m') && duration(self) <= duration('720h')",message="podForceDetachAfter must be a duration from 1m to 720h, in hours, minutes and seconds such as 6m or 1h30m"
	// +optional
	PodForceDetachAfter *metav1.Duration `json:"podForceDetachAfter,omitempty"`

	// forgetGoneNodesAfter declares released what was forced away from a Node that has been gone, or was being deleted,
	// for this long, from 1h to 8760h. Absent: never. Warning: the machine must not return under that name with the volume
	// still mounted.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self != '' && self.matches('^([0-9]{1,5}h)?([0-9]{1,5}m)?([0-9]{1,5}([.][0-9]{1,9})?s)?$') && duration(self) >= duration('1h') && duration(self) <= duration('8760h')",message="forgetGoneNodesAfter must be a duration from 1h to 8760h, in hours, minutes and seconds such as 24h"
	// +optional
	ForgetGoneNodesAfter *metav1.Duration `json:"forgetGoneNodesAfter,omitempty"`

	// releaseSetsOnTaints are keys of taints, such as one that an autoscaler sets before it deletes a Node. A set of
	// intents deletes its intent on a Node with such a taint, and creates it again when the taint is gone. Empty: none.
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=316
	// +kubebuilder:validation:items:Pattern=`^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="self.all(t, !t.startsWith('node.cluster.x-k8s.io/'))",message="taints of node.cluster.x-k8s.io are on Nodes that are in use"
	// +optional
	ReleaseSetsOnTaints []string `json:"releaseSetsOnTaints,omitempty"`
}

// VerificationEndpoint is deprecated and has no effect.
type VerificationEndpoint struct {
	// driver has no effect.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +required
	Driver string `json:"driver,omitempty"`
	// socket has no effect.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=107
	// +required
	Socket string `json:"socket,omitempty"`
}

// Verification is deprecated and has no effect.
type Verification struct {
	// period has no effect.
	// +kubebuilder:validation:MaxLength=32
	// +optional
	Period string `json:"period,omitempty"`
	// endpoints have no effect.
	// +listType=map
	// +listMapKey=driver
	// +kubebuilder:validation:MaxItems=32
	// +optional
	Endpoints []VerificationEndpoint `json:"endpoints,omitempty"`
}

// ManagerWorkload is the Deployment of the manager.
type ManagerWorkload struct {
	// replicas of the manager: one leads, the others wait.
	// +default=2
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=5
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`
	// resources of its container. Absent: those of the release.
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`
}

// AgentWorkload is the DaemonSet of the agents. They use the network of their hosts.
// +kubebuilder:validation:XValidation:rule="!has(self.metricsPort) || !has(self.healthPort) || self.metricsPort != self.healthPort",message="metricsPort and healthPort must differ"
type AgentWorkload struct {
	// resources of its container. Absent: those of the release.
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`
	// maxUnavailable is the node budget of a rollout: how many agents may be absent at once, a number or a percentage
	// of the nodes. Absent: 10%. Mounts stay while an agent is replaced.
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 : self.matches('^(100|[1-9][0-9]?)%$')",message="maxUnavailable must be a number of at least 1 or a percentage from 1% to 100%"
	// +optional
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
	// metricsPort of the agents on their hosts.
	// +default=9843
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	// +optional
	MetricsPort int32 `json:"metricsPort,omitempty"`
	// healthPort of the agents on the loopback address of their hosts.
	// +default=9844
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	// +optional
	HealthPort int32 `json:"healthPort,omitempty"`
	// driverTimeout is how long one driver call may take, from 10s to 1h. Absent: 2m.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self != '' && self.matches('^([0-9]{1,5}h)?([0-9]{1,5}m)?([0-9]{1,5}([.][0-9]{1,9})?s)?$') && duration(self) >= duration('10s') && duration(self) <= duration('1h')",message="driverTimeout must be a duration from 10s to 1h, in hours, minutes and seconds such as 2m"
	// +optional
	DriverTimeout *metav1.Duration `json:"driverTimeout,omitempty"`
	// statsPeriod is how often an agent asks the drivers how full their volumes are, from 10s to 24h, with some
	// jitter. Absent: 1m.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self != '' && self.matches('^([0-9]{1,5}h)?([0-9]{1,5}m)?([0-9]{1,5}([.][0-9]{1,9})?s)?$') && duration(self) >= duration('10s') && duration(self) <= duration('24h')",message="statsPeriod must be a duration from 10s to 24h, in hours, minutes and seconds such as 1m"
	// +optional
	StatsPeriod *metav1.Duration `json:"statsPeriod,omitempty"`
}

// Images of the programs. An empty one is that of the release.
type Images struct {
	// manager image.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Manager string `json:"manager,omitempty"`
	// agent image.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Agent string `json:"agent,omitempty"`
}

// VolumeManagerSpec is how Hawser is set up.
// +kubebuilder:validation:XValidation:rule="!has(self.attachMode) || self.attachMode != 'Replace' || !has(self.podIntents) || self.podIntents != 'Never'",message="attachMode Replace needs the intents of pods: without them pods get no volumes. Set podIntents to Auto or Always"
// +kubebuilder:validation:XValidation:rule="!has(self.rootDirectory) || !has(self.kubeletRoot) || self.rootDirectory != self.kubeletRoot && !self.rootDirectory.startsWith(self.kubeletRoot + '/') && !self.kubeletRoot.startsWith(self.rootDirectory + '/')",message="rootDirectory and kubeletRoot must not contain each other"
type VolumeManagerSpec struct {
	// attachMode is who attaches the volumes of pods: Coexist leaves them to upstream's attach/detach controller,
	// Replace takes its place. Turn that controller off before Replace.
	// +default="Coexist"
	// +optional
	AttachMode AttachMode `json:"attachMode,omitempty"`

	// podIntents is whether the manager writes intents for the volumes of pods: Auto (in Replace only), Always, Never.
	// +default="Auto"
	// +optional
	PodIntents PodIntents `json:"podIntents,omitempty"`

	// nodeSelector selects the nodes that get an agent, beside kubernetes.io/os: linux. A change that would take the
	// agent from a node where volumes are in use is held back.
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="!('kubernetes.io/os' in self) || self['kubernetes.io/os'] == 'linux'",message="agents run on Linux only: leave kubernetes.io/os out of nodeSelector, or set it to linux"
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// nodeAffinity selects the nodes that may get an agent, beside nodeSelector: one of its terms must match. Absent:
	// every node but those of Fargate and of virtual kubelets, which run no agent. A change that would take the agent
	// from a node where volumes are in use is held back.
	// +optional
	NodeAffinity *corev1.NodeSelector `json:"nodeAffinity,omitempty"`

	// tolerations of the agents. Absent: every taint, also of a node that is drained or not Ready, whose volumes the
	// agent has to release. A change that would take the agent from a node where volumes are in use is held back.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +optional
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// kubeletRoot is the kubelet's root directory, by the name that the kubelet has for it. It cannot be changed while
	// volumes are in use.
	// +default="/var/lib/kubelet"
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.matches('^(/[^/]+)+$') && self.split('/').all(p, p != '..' && p != '.')",message="kubeletRoot must be an absolute path without '.', '..' and a final '/'"
	// +optional
	KubeletRoot string `json:"kubeletRoot,omitempty"`

	// rootDirectory of the agents on their nodes, for records and published volumes. It cannot be changed: the agents
	// would not find what they have mounted.
	// +default="/var/lib/hawser"
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.matches('^(/[^/]+)+$') && self.split('/').all(p, p != '..' && p != '.')",message="rootDirectory must be an absolute path without '.', '..' and a final '/'"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="rootDirectory cannot be changed: the agents would not find what they have mounted"
	// +optional
	RootDirectory string `json:"rootDirectory,omitempty"`

	// detach without the report of an agent.
	// +optional
	Detach *DetachDefaults `json:"detach,omitempty"`

	// fencing is what proves that the machine of a Node is off or gone.
	// +optional
	Fencing *Fencing `json:"fencing,omitempty"`

	// nodeLabels has the manager label each Node where the intent of a set is Ready with
	// ready.volumes.hawser.io/<namespace>.<set>, so that pods can be scheduled where their data is. Absent: no labels. The
	// manager then gets the right to patch Nodes, which an admission policy restricts to these labels.
	// +optional
	NodeLabels *bool `json:"nodeLabels,omitempty"`

	// verification is deprecated and has no effect. v1beta1 does not have it: remove it. The external-attacher
	// of a driver compares what is attached with what the driver lists.
	// +optional
	Verification *Verification `json:"verification,omitempty"`

	// logLevel of manager and agents: Error, Info or Debug.
	// +default="Info"
	// +optional
	LogLevel LogLevel `json:"logLevel,omitempty"`

	// manager is its Deployment.
	// +default={}
	// +optional
	Manager ManagerWorkload `json:"manager,omitzero"`

	// agent is its DaemonSet.
	// +default={}
	// +optional
	Agent AgentWorkload `json:"agent,omitzero"`

	// images of the programs. Empty: those of the release.
	// +optional
	Images Images `json:"images,omitempty"`

	// metricsCertificateSecret names a Secret of type kubernetes.io/tls in Hawser's namespace, whose certificate
	// manager and agents use for their metrics. Empty: self-signed certificates.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')",message="metricsCertificateSecret must be the name of a Secret"
	// +optional
	MetricsCertificateSecret string `json:"metricsCertificateSecret,omitempty"`

	// networkPolicy is whether the operator manages a NetworkPolicy for manager and agents: Managed or None.
	// +default="Managed"
	// +optional
	NetworkPolicy Management `json:"networkPolicy,omitempty"`

	// monitoring is whether the operator manages a ServiceMonitor and PodMonitors: Managed or None. They are left out
	// while the Prometheus operator's kinds are missing.
	// +default="Managed"
	// +optional
	Monitoring Management `json:"monitoring,omitempty"`

	// removal is what a deletion of this object does while volumes are in use: Refuse it, or Drain. Drain deletes every
	// intent and waits until each volume is released. In both cases everything that Hawser ever wrote goes then.
	// +default="Refuse"
	// +optional
	Removal Removal `json:"removal,omitempty"`
}

// VolumeManager is how Hawser itself is set up. The operator turns it into the manager, the agents and their policies.
// The only one is named cluster.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=hvm,categories=hawser
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'cluster'",message="the only VolumeManager of a cluster is named cluster"
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.attachMode`
// +kubebuilder:printcolumn:name="Available",type=string,JSONPath=`.status.conditions[?(@.type=="Available")].status`
// +kubebuilder:printcolumn:name="Progressing",type=string,JSONPath=`.status.conditions[?(@.type=="Progressing")].status`
// +kubebuilder:printcolumn:name="Degraded",type=string,JSONPath=`.status.conditions[?(@.type=="Degraded")].status`
// +kubebuilder:printcolumn:name="Agents",type=integer,JSONPath=`.status.agents.ready`
// +kubebuilder:printcolumn:name="Nodes",type=integer,JSONPath=`.status.agents.desired`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.version`,priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Degraded")].message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type VolumeManager struct {
	metav1.TypeMeta `json:",inline"`
	// metadata of the object. Its name is cluster.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is how Hawser is set up.
	// +default={}
	// +optional
	Spec VolumeManagerSpec `json:"spec,omitzero"`
	// status is written by the operator. An absent observedGeneration would be the same as a reconciled generation of 0.
	// +default={"observedGeneration":-1}
	// +optional
	Status VolumeManagerStatus `json:"status,omitzero"`
}

// VolumeManagerList is a list of VolumeManagers.
// +kubebuilder:object:root=true
type VolumeManagerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []VolumeManager `json:"items"`
}
