/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// FenceProof is what a fence proves: of a machine, or of what it may still reach.
// +kubebuilder:validation:Enum=PowerOff;InstanceGone;AccessCut
type FenceProof string

const (
	// FencePowerOff means that the machine was powered off, or reset, while the fence holds.
	FencePowerOff FenceProof = "PowerOff"
	// FenceInstanceGone means that the machine does not exist any more.
	FenceInstanceGone FenceProof = "InstanceGone"
	// FenceAccessCut means that addresses cannot reach the storage of one driver while the fence holds. The machine may
	// run.
	FenceAccessCut FenceProof = "AccessCut"
)

// FenceSource describes objects of another program that powers machines off, knows that they are off or gone, or cuts
// their access to storage. While such an object holds, volumes are detached on evidence Fenced: from its Node if the
// agent is silent since before, or, with AccessCut, from each Node whose addresses are all cut. A person who may write
// these objects may have volumes detached.
// +kubebuilder:validation:XValidation:rule="self.proves == 'AccessCut' || has(self.nodeName) != has(self.providerID)",message="a source names the Node by either nodeName or providerID"
// +kubebuilder:validation:XValidation:rule="self.proves != 'AccessCut' || !has(self.nodeName) && !has(self.providerID)",message="a source that proves AccessCut names addresses, and has neither nodeName nor providerID"
// +kubebuilder:validation:XValidation:rule="self.proves != 'AccessCut' || has(self.driver) && has(self.addresses) && has(self.clients)",message="a source that proves AccessCut has driver, addresses and clients"
// +kubebuilder:validation:XValidation:rule="self.proves == 'AccessCut' || !has(self.driver) && !has(self.addresses) && !has(self.covers) && !has(self.clients)",message="only a source that proves AccessCut has driver, addresses, covers and clients"
type FenceSource struct {
	// name of the source. Evidence, conditions and events have it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +required
	Name string `json:"name,omitempty"`
	// group of the objects, such as metal3.io. Empty: the core group.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Group string `json:"group,omitempty"`
	// version of the objects, such as v1alpha1.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +required
	Version string `json:"version,omitempty"`
	// resource of the objects: the plural in lower case, as in the rules of a ClusterRole, such as baremetalhosts.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z]([-a-z0-9]*[a-z0-9])?$`
	// +required
	Resource string `json:"resource,omitempty"`
	// nodeName is a CEL expression over the object that returns the name of the Node; empty where it names none.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	NodeName string `json:"nodeName,omitempty"`
	// providerID is a CEL expression over the object that returns the spec.providerID of the Node; empty where it names
	// none.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	ProviderID string `json:"providerID,omitempty"`
	// holds is a CEL expression over the object that is true while the fence holds. One that fails is no fence.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	// +required
	Holds string `json:"holds,omitempty"`
	// proves is what the fence proves: PowerOff, InstanceGone or AccessCut.
	// +required
	Proves FenceProof `json:"proves,omitempty"`
	// driver is a CEL expression over the object that returns the name of the CSI driver whose storage the addresses
	// cannot reach; empty where the object names none. Only with AccessCut.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Driver string `json:"driver,omitempty"`
	// addresses is a CEL expression over the object that returns the list of addresses that are cut: each an IP address
	// or a CIDR without host bits. Only with AccessCut.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	// +optional
	Addresses string `json:"addresses,omitempty"`
	// covers is a CEL expression over the object and volume (driver, handle, attributes) that is true if the fence cuts
	// the access to that volume. By default every volume of the driver is covered. It is needed where a driver has several
	// storage systems. Only with AccessCut.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	// +optional
	Covers string `json:"covers,omitempty"`
	// clients are the objects in which a driver reports the addresses of its nodes. The fence counts for a node only if it
	// has every address that is reported for it. Only with AccessCut.
	// +optional
	Clients *FenceClients `json:"clients,omitempty"`
}

// FenceClients describes objects in which a driver reports by which addresses a node reaches its storage.
type FenceClients struct {
	// group of the objects, such as csiaddons.openshift.io. Empty: the core group.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Group string `json:"group,omitempty"`
	// version of the objects, such as v1alpha1.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +required
	Version string `json:"version,omitempty"`
	// resource of the objects: the plural in lower case, as in the rules of a ClusterRole, such as csiaddonsnodes.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z]([-a-z0-9]*[a-z0-9])?$`
	// +required
	Resource string `json:"resource,omitempty"`
	// nodeName is a CEL expression over the object that returns the name of the Node; empty where it names none.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +required
	NodeName string `json:"nodeName,omitempty"`
	// driver is a CEL expression over the object that returns the name of the CSI driver; empty where it names none.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +required
	Driver string `json:"driver,omitempty"`
	// addresses is a CEL expression over the object that returns the list of addresses that the driver reports for the
	// node: IP addresses or CIDRs.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	// +required
	Addresses string `json:"addresses,omitempty"`
}

// Fencing is what proves that machines are off or gone, or that their access to storage is cut.
type Fencing struct {
	// sources of fences. The manager needs the right to get, list and watch their objects, which an administrator
	// grants; condition FenceSourcesReady shows what is missing.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Sources []FenceSource `json:"sources,omitempty"`
	// manageOutOfServiceTaint has the manager set the taint node.kubernetes.io/out-of-service, with a value of its own, on
	// a Node that is not Ready while a fence counts: the node's pods are then removed, so that they start elsewhere. The
	// manager removes the taint once the node's agent has reported that nothing is left of what was detached by force, and
	// attaches nothing to the Node before that. It changes no such taint of others. Default: false.
	// +optional
	ManageOutOfServiceTaint *bool `json:"manageOutOfServiceTaint,omitempty"`
}

// OutOfServiceTaintValue is the value of the taint node.kubernetes.io/out-of-service that the manager sets.
const OutOfServiceTaintValue = "volumes.hawser.io"

// FenceObservation is a fence as managers first saw it. It asserts that the machine is off or gone, and replaces the
// agent's report only if the agent is silent, was never heard since the fence was seen, and the fence still holds.
type FenceObservation struct {
	FenceReference `json:",inline"`
	// lastRenewal identifies the last renewal of the agent's Lease when a manager first saw the fence. It is only compared
	// for equality: any other renewal contradicts the fence.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	LastRenewal string `json:"lastRenewal,omitempty"`
	// lastSession is status.protocol.session when a manager first saw the fence: any other one contradicts the fence.
	// +kubebuilder:validation:Minimum=0
	// +optional
	LastSession int64 `json:"lastSession,omitempty"`
	// observed is when a manager first saw the fence.
	// +required
	Observed metav1.Time `json:"observed"`
	// contradicted is when a manager saw that the agent had been heard since. From then on the fence is no
	// evidence until it is lifted and holds again.
	// +optional
	Contradicted *metav1.Time `json:"contradicted,omitempty"`
}

// FenceReference names a fence.
type FenceReference struct {
	// source in spec.fencing.sources of the VolumeManager.
	// +kubebuilder:validation:MaxLength=63
	// +required
	Source string `json:"source,omitempty"`
	// namespace of the object; empty for one of the whole cluster.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// name of the object.
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name,omitempty"`
	// uid of the object.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=128
	// +required
	UID types.UID `json:"uid,omitempty"`
	// generation of the object, with AccessCut: once its spec has changed it is another fence.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Generation int64 `json:"generation,omitempty"`
	// proves is what the fence proves: PowerOff, InstanceGone or AccessCut.
	// +required
	Proves FenceProof `json:"proves,omitempty"`
}
