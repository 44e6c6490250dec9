/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package preflight

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/controller/volume"
	"github.com/hawser-io/hawser/internal/explain/catalog"
	"github.com/hawser-io/hawser/internal/explain/facts"
)

// Driver is a CSI driver of the cluster, and what Hawser gives for it.
type Driver struct {
	Name string `json:"name"`
	// Nodes where it is registered.
	Nodes int `json:"nodes"`
	// Volumes are PersistentVolumes of it, and Translated those among them with the source of a plugin that was once
	// built into Kubernetes. Numbers are -1 where they could not be read.
	Volumes    int `json:"volumes"`
	Translated int `json:"translatedVolumes,omitempty"`
	// Attached counts its VolumeAttachments that are attached.
	Attached       int                     `json:"attached"`
	AttachRequired bool                    `json:"attachRequired"`
	FSGroupPolicy  storagev1.FSGroupPolicy `json:"fsGroupPolicy"`
	Persistent     bool                    `json:"persistent"`
	// Attacher is what shows that its external-attacher runs.
	Attacher string `json:"attacher,omitempty"`
	// Gives is what Hawser gives for it, and Not what it asks for and does not get for intents.
	Gives string `json:"gives"`
	Not   string `json:"notForIntents,omitempty"`

	object *storagev1.CSIDriver
}

// Source is a kind of volume that no CSI driver serves.
type Source struct {
	Name    string `json:"name"`
	Volumes int    `json:"volumes"`
}

// NeedsUpstream reports whether the kubelet waits until a controller lists such volumes as attached, which only
// Kubernetes' own does: nothing is attached for iSCSI and Fibre Channel, and FlexVolumes may attach.
func (s Source) NeedsUpstream() bool {
	return slices.Contains([]string{"iscsi", "fc", "flexVolume"}, s.Name)
}

func drivers(x *examination) {
	found, others := x.driversByName()
	before := len(x.report.Checks)
	for _, name := range slices.Sorted(maps.Keys(found)) {
		d := found[name]
		x.attacher(d)
		d.judge()
		ref := facts.Ref{Kind: facts.KindCSIDriver, Name: name}
		if d.Not != "" && d.Persistent {
			x.find(catalog.DriverLimits, ref, "%s", d.Not)
		}
		if d.AttachRequired && d.Persistent && d.Attacher == "" && !x.distribution.managed && x.attachersReadable() {
			x.find(catalog.AttacherNotSeen, ref, "it has no Lease, no workload with its name, and no volume that is attached")
		}
		if x.Volumes.Err != nil {
			d.Volumes = -1
		}
		if x.Attachments.Err != nil {
			d.Attached = -1
		}
		x.report.Drivers = append(x.report.Drivers, *d)
	}
	for _, name := range slices.Sorted(maps.Keys(others)) {
		x.report.Others = append(x.report.Others, Source{name, others[name]})
	}
	switch {
	case len(found) == 0:
		x.find(catalog.NoDrivers, facts.Ref{Kind: facts.KindCSIDriver, Name: "(none)"}, "%d PersistentVolumes",
			len(x.Volumes.Items))
	case len(x.report.Checks) == before:
		x.ok("%d, listed below with what Hawser gives for each", len(found))
	}
}

// attachersReadable reports whether all was read that could show an attacher.
func (x *examination) attachersReadable() bool {
	return len(x.unread([]string{facts.KindAttachment, facts.KindLease, KindDeployment, KindStatefulSet,
		KindDaemonSet})) == 0
}

// driversByName are those that any object names, and the kinds of the other volumes with their numbers.
func (x *examination) driversByName() (found map[string]*Driver, others map[string]int) {
	found, others = map[string]*Driver{}, map[string]int{}
	of := func(name string) *Driver {
		if found[name] == nil {
			// Without a CSIDriver these are Kubernetes' defaults.
			found[name] = &Driver{Name: name, AttachRequired: true, Persistent: true,
				FSGroupPolicy: storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy}
		}
		return found[name]
	}
	for _, o := range x.Drivers.Items {
		d := of(o.Name)
		d.object = o
		d.AttachRequired = ptr.Deref(o.Spec.AttachRequired, true)
		d.FSGroupPolicy = ptr.Deref(o.Spec.FSGroupPolicy, d.FSGroupPolicy)
		modes := o.Spec.VolumeLifecycleModes
		d.Persistent = len(modes) == 0 || slices.Contains(modes, storagev1.VolumeLifecyclePersistent)
	}
	for _, n := range x.CSINodes.Items {
		for i := range n.Spec.Drivers {
			of(n.Spec.Drivers[i].Name).Nodes++
		}
	}
	for _, pv := range x.Volumes.Items {
		translated, err := volume.Translated(pv)
		name := volume.DriverOf(translated)
		if err != nil || name == "" {
			others[sourceOf(pv)]++
			continue
		}
		d := of(name)
		d.Volumes++
		if volume.Migrated(pv) {
			d.Translated++
		}
	}
	for _, a := range x.Attachments.Items {
		if d := of(a.Driver); a.Attached {
			d.Attached++
		}
	}
	delete(found, volumesv1alpha1.InlineDriver)
	return found, others
}

// sourceOf names the source of a volume as its spec does, such as nfs.
func sourceOf(pv *corev1.PersistentVolume) string {
	source := reflect.ValueOf(pv.Spec.PersistentVolumeSource)
	for i := range source.NumField() {
		if !source.Field(i).IsNil() {
			name, _, _ := strings.Cut(source.Type().Field(i).Tag.Get("json"), ",")
			return name
		}
	}
	return "(no source)"
}

// judge names what Hawser gives for the driver.
func (d *Driver) judge() {
	var not []string
	if d.object != nil {
		spec := &d.object.Spec
		if len(spec.TokenRequests) > 0 {
			not = append(not, "tokens of service accounts (tokenRequests)")
		}
		if ptr.Deref(spec.PodInfoOnMount, false) {
			not = append(not, "the pod's name and account (podInfoOnMount)")
		}
		if ptr.Deref(spec.RequiresRepublish, false) {
			not = append(not, "repeated publishing (requiresRepublish)")
		}
	}
	d.Not = strings.Join(not, ", ")
	switch {
	case !d.Persistent:
		d.Gives, d.Not = "nothing: it has no PersistentVolumes", ""
	case d.AttachRequired:
		d.Gives = "attach, mount, inline volumes; pods' claims in mode Replace"
	default:
		d.Gives = "mount, inline volumes; it needs no attach, so the modes do not differ"
	}
}

// leaseFresh is how old the renewal of a leader's Lease may be; clocks of nodes differ.
const leaseFresh = 5 * time.Minute

// LeaseOfAttachers begins the names of the Leases of external-attachers that elect a leader.
const LeaseOfAttachers = "external-attacher-leader-"

// unsafeInLease are the characters of a driver's name that leader election replaces.
var unsafeInLease = regexp.MustCompile("[^a-zA-Z0-9-]")

// attacherImage is part of the image of every external-attacher, whatever registry it comes from.
const attacherImage = "csi-attacher"

// attacher finds what shows that the attacher of a driver runs.
func (x *examination) attacher(d *Driver) {
	if !d.AttachRequired {
		return
	}
	name := LeaseOfAttachers + unsafeInLease.ReplaceAllString(d.Name, "-")
	i := slices.IndexFunc(x.Attachers.Items, func(l *coordinationv1.Lease) bool {
		return l.Name == name && l.Spec.RenewTime != nil && x.now.Sub(l.Spec.RenewTime.Time) < leaseFresh
	})
	switch {
	case i >= 0:
		d.Attacher = "Lease " + x.Attachers.Items[i].Namespace + "/" + name
	default:
		d.Attacher = cmp.Or(x.attacherWorkload(d.Name), attached(d.Attached))
	}
}

func attached(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("VolumeAttachments (%d attached)", n)
}

// attacherWorkload is one whose pods have an attacher and contain the name of the driver; empty for none.
func (x *examination) attacherWorkload(driver string) string {
	for _, w := range x.workloads() {
		has := slices.ContainsFunc(w.template.Spec.Containers, func(c corev1.Container) bool {
			return strings.Contains(c.Image, attacherImage)
		})
		// It cannot fail: the template came as JSON.
		if text, _ := json.Marshal(w.template); has && w.ready > 0 && strings.Contains(string(text), driver) {
			return w.ref.String()
		}
	}
	return ""
}
