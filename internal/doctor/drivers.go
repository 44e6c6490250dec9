/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/explain"
	"github.com/hawser-io/hawser/internal/explain/catalog"
	"github.com/hawser-io/hawser/internal/explain/facts"
)

// manyAttachments of a driver on one node are more than most storage systems attach. A CSINode without a limit is then
// worth knowing.
const manyAttachments = 64

// exhausted is the code of gRPC by which a driver refuses an attachment to a full node.
const exhausted = 8

// use is what a node has of one driver.
type use struct {
	// volumes by their unique names. attached are those with an attachment.
	volumes, attached sets.Set[string]
	namespaces        []string
	// refused is true if the driver has refused an attachment because the node is full.
	refused bool
}

// usesOf are the volumes of a node by driver: those that are attached, and those that its pods use.
func (x *examination) usesOf(node string) map[string]*use {
	uses := map[string]*use{}
	add := func(driver string, pv *corev1.PersistentVolume, handle string) *use {
		u := uses[driver]
		if u == nil {
			u = &use{volumes: sets.New[string](), attached: sets.New[string]()}
			uses[driver] = u
		}
		u.volumes.Insert(handle)
		u.namespaces = append(u.namespaces, namespaceOf(pv))
		return u
	}
	for _, va := range x.attachmentsOn[node] {
		if va.DeletionTimestamp != nil && !va.Status.Attached {
			continue
		}
		a := x.attachment(va)
		handle := va.Name
		if a.pv != nil && volume.UniqueNameOf(a.pv) != "" {
			handle = volume.UniqueNameOf(a.pv)
		}
		u := add(va.Spec.Attacher, a.pv, handle)
		u.attached.Insert(handle)
		e := va.Status.AttachError
		u.refused = u.refused || e != nil && ptr.Deref(e.ErrorCode, 0) == exhausted && !va.Status.Attached
	}
	for _, pod := range x.podsOn[node] {
		for i := range pod.Spec.Volumes {
			claim, ok := facts.ClaimOf(pod, &pod.Spec.Volumes[i])
			if !ok {
				continue
			}
			pv := x.volumeOf(client.ObjectKey{Namespace: pod.Namespace, Name: claim})
			if pv != nil && pv.Spec.CSI != nil && pod.Status.Phase == corev1.PodRunning {
				add(pv.Spec.CSI.Driver, pv, volume.UniqueNameOf(pv))
			}
		}
	}
	return uses
}

// attachLimits finds nodes that are full, and limits that are not known.
func attachLimits(x *examination) {
	known := sets.New[string]() // drivers that have a limit on some node
	for _, n := range x.c.CSINodes.Items {
		for i := range n.Spec.Drivers {
			if explain.LimitOf(&n.Spec.Drivers[i]) != nil {
				known.Insert(n.Spec.Drivers[i].Name)
			}
		}
	}
	for _, n := range x.c.CSINodes.Items {
		if of(x.nodes, n.Name) == nil {
			continue
		}
		uses := x.usesOf(n.Name)
		for i := range n.Spec.Drivers {
			d := &n.Spec.Drivers[i]
			if u := uses[d.Name]; u != nil {
				x.limit(n, d, u, known.Has(d.Name))
			}
		}
	}
}

func (x *examination) limit(n *storagev1.CSINode, d *storagev1.CSINodeDriver, u *use, elsewhere bool) {
	f := about{severity: Risk, object: refOf(facts.KindCSINode, n), group: d.Name, namespaces: u.namespaces,
		places: map[string]string{"driver": d.Name}}
	limit := explain.LimitOf(d)
	switch {
	case limit != nil && u.volumes.Len() >= int(*limit):
		f.reason = volumesv1alpha1.ReasonNodeLimitReached
		if u.volumes.Len() == int(*limit) && !x.waitsForRoom(n.Name, u) {
			f.severity = Notice
		}
		f.detail = fmt.Sprintf("%d of %d volumes of driver %s", u.volumes.Len(), *limit, d.Name)
	case limit != nil || u.attached.Len() == 0:
		return
	case u.refused:
		f.reason = catalog.LimitUnknown
		f.detail = fmt.Sprintf("driver %s refuses a further attachment; %d are there", d.Name, u.attached.Len())
	case elsewhere:
		f.reason = catalog.LimitUnknown
		f.detail = fmt.Sprintf("driver %s has a limit on other nodes; attachments here: %d", d.Name, u.attached.Len())
	case u.attached.Len() >= manyAttachments:
		f.reason, f.severity = catalog.LimitUnknown, Notice
		f.detail = fmt.Sprintf("attachments of driver %s: %d", d.Name, u.attached.Len())
	default:
		return
	}
	x.find(f)
}

// waitsForRoom reports whether something waits for a volume less on a node.
func (x *examination) waitsForRoom(node string, u *use) bool {
	return u.refused || slices.ContainsFunc(x.intentsOn[node], func(i *volumesv1alpha1.VolumeAttachmentIntent) bool {
		attached := meta.FindStatusCondition(i.Status.Conditions, volumesv1alpha1.ConditionAttached)
		return attached != nil && attached.Reason == volumesv1alpha1.ReasonNodeLimitReached
	})
}

// missingDrivers finds nodes that have volumes of a driver that is not registered there.
func missingDrivers(x *examination) {
	for _, node := range x.c.Nodes.Items {
		if !ready(node) {
			continue
		}
		n := of(x.csiNodes, node.Name)
		uses := x.usesOf(node.Name)
		for _, driver := range slices.Sorted(maps.Keys(uses)) {
			u := uses[driver]
			f := about{severity: Outage, reason: volumesv1alpha1.ReasonDriversMissing, group: driver,
				object: facts.Ref{Kind: facts.KindCSINode, Name: node.Name}, namespaces: u.namespaces,
				places: map[string]string{"driver": driver},
				detail: fmt.Sprintf("%d volumes there need driver %s", u.volumes.Len(), driver)}
			switch {
			case n == nil && x.old(node.CreationTimestamp.Time, stepTakes):
				f.reason = catalog.CSINodeMissing
			case n == nil || driverOf(n, driver) != nil:
				continue
			default:
				f.since = explain.Written(n.ManagedFields, "")
			}
			if x.old(f.since, settles) {
				x.find(f)
			}
		}
	}
}

// unhandledAttachments finds attachments of drivers that are declared to attach nothing.
func unhandledAttachments(x *examination) {
	of := map[string][]attachment{}
	for _, va := range x.c.Attachments.Items {
		if va.DeletionTimestamp == nil && x.old(va.CreationTimestamp.Time, settles) {
			of[va.Spec.Attacher] = append(of[va.Spec.Attacher], x.attachment(va))
		}
	}
	for _, d := range x.c.Drivers.Items {
		all := of[d.Name]
		if ptr.Deref(d.Spec.AttachRequired, true) || len(all) == 0 || !x.old(d.CreationTimestamp.Time, settles) {
			continue
		}
		f := all[0].about(Risk, catalog.AttachmentsNotHandled)
		f.object, f.claim, f.since = refOf(facts.KindCSIDriver, d), nil, d.CreationTimestamp.Time
		f.detail = fmt.Sprintf("%d attachments, such as of %s", len(all), f.detail)
		f.places["attachment"] = all[0].Name
		for _, a := range all {
			f.namespaces = append(f.namespaces, namespaceOf(a.pv))
		}
		x.find(f)
	}
}

// contradictedDrivers finds PersistentVolumes that their CSIDriver does not allow.
func contradictedDrivers(x *examination) {
	for _, object := range x.c.Volumes.Items {
		if object.Spec.CSI == nil || object.Status.Phase != corev1.VolumeBound {
			continue
		}
		d := of(x.drivers, object.Spec.CSI.Driver)
		if d == nil {
			continue
		}
		var detail string
		switch modes := d.Spec.VolumeLifecycleModes; {
		case len(modes) > 0 && !slices.Contains(modes, storagev1.VolumeLifecyclePersistent):
			detail = "volumeLifecycleModes of the CSIDriver has no Persistent"
		case ptr.Deref(d.Spec.SELinuxMount, false) && slices.ContainsFunc(object.Spec.MountOptions, isContext):
			detail = "the CSIDriver has seLinuxMount, and mountOptions of the PersistentVolume have a context: a pod with " +
				"SELinux options gets two"
		default:
			continue
		}
		x.find(about{severity: Risk, reason: catalog.DriverContradicted, object: refOf(facts.KindVolume, object),
			claim: x.claimOf(object), namespaces: []string{namespaceOf(object)}, detail: detail, group: d.Name + detail,
			places: map[string]string{"driver": d.Name}})
	}
}

func isContext(option string) bool { return strings.HasPrefix(option, "context=") }

// sickStorage finds what drivers report of their storage to Kubernetes itself.
func sickStorage(x *examination) {
	for _, n := range x.c.CSINodes.Items {
		for _, h := range n.Status.StorageHealth {
			for _, c := range h.HealthConditions {
				if !x.old(c.LastTransitionTime.Time, settles) || !x.first(volumesv1alpha1.ReasonStorageUnhealthy, n.Name) {
					continue
				}
				x.find(about{severity: Outage, reason: volumesv1alpha1.ReasonStorageUnhealthy, group: h.Name,
					object: refOf(facts.KindCSINode, n), since: c.LastTransitionTime.Time,
					detail: fmt.Sprintf("driver %s: %s %s: %s", h.Name, c.Status, c.Reason, c.Message)})
			}
		}
	}
}

// oneDriver leaves of a driver that is missing on a node only what waits for it there, with how many volumes need it.
func (x *examination) oneDriver() {
	at := map[facts.Ref]int{}
	for i := range x.found {
		if x.found[i].Reason == volumesv1alpha1.ReasonDriverNotInstalled {
			at[x.found[i].Object] = i
		}
	}
	for i := range x.found {
		f := &x.found[i]
		first, waits := at[f.Object]
		if f.Reason == volumesv1alpha1.ReasonDriversMissing && waits {
			x.found[first].Detail += "; " + f.Detail
			maps.Copy(x.found[first].namespaces, f.namespaces)
		}
	}
	x.found = slices.DeleteFunc(x.found, func(f Finding) bool {
		_, waits := at[f.Object]
		return f.Reason == volumesv1alpha1.ReasonDriversMissing && waits
	})
}
