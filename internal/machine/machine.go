/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package machine distinguishes machines that run under one node name. A Node object does not: two kubelets of one name
// write it in turn.
package machine

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/handshake"
)

// Where the kernel and the host keep the identifiers. The agent's container shares the host's process IDs, but has an
// /etc of its own: what is there is the same on each machine.
const (
	systemUUIDFile    = "/sys/class/dmi/id/product_uuid"
	hostMachineIDFile = "/proc/1/root/etc/machine-id"
)

// hashPrefix is hashed before an identifier: machine-id(5) asks that it is not shown as it is.
const hashPrefix = "volumes.hawser.io/machine:"

// hashLength is how much of a hash is kept, in hexadecimal digits.
const hashLength = 16

// placeholders are system UUIDs that vendors leave in more than one machine, without hyphens and in lower case.
var placeholders = []string{
	"03000200040005000006000700080009", "00020003000400050006000700080009", "12345678123456781234567812345678",
	"0123456789abcdef0123456789abcdef", "01234567890123456789012345678901", "fefefefefefefefefefefefefefefefe",
	"030201000504070608090a0b0c0d0e0f", "000102030405060708090a0b0c0d0e0f", "00112233445566778899aabbccddeeff",
	"aaaaaaaabbbbccccddddeeeeeeeeeeee",
}

// Read reads the identity of this machine. An identifier that cannot be read, or that is a placeholder, is missing.
// file replaces both sources where several nodes share one kernel: its lines are the system UUID and the machine ID.
func Read(file string) (volumesv1alpha1.MachineIdentity, error) {
	if file != "" {
		data, err := os.ReadFile(file)
		if err != nil {
			return volumesv1alpha1.MachineIdentity{}, fmt.Errorf("reading the identity of the machine: %w", err)
		}
		uuid, id, _ := strings.Cut(strings.TrimSpace(string(data)), "\n")
		return New(uuid, id), nil
	}
	uuid, err := read(systemUUIDFile)
	id, err2 := read(hostMachineIDFile)
	return New(uuid, id), errors.Join(err, err2)
}

// read returns nothing if there is no such file.
func read(file string) (string, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return string(data), err
}

// New is the identity with that system UUID and that machine ID, as they are read.
func New(uuid, id string) volumesv1alpha1.MachineIdentity {
	return volumesv1alpha1.MachineIdentity{SystemUUID: hash(normal(uuid)), MachineID: hash(normal(id))}
}

// normal is an identifier of 32 hexadecimal digits, or empty where it identifies nothing.
func normal(id string) string {
	id = strings.ToLower(strings.ReplaceAll(strings.TrimSpace(id), "-", ""))
	_, err := hex.DecodeString(id)
	switch {
	case err != nil || len(id) != 32, slices.Contains(placeholders, id), strings.Trim(id, id[:1]) == "":
		return ""
	}
	return id
}

func hash(id string) string {
	if id == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(hashPrefix + id))
	return hex.EncodeToString(sum[:])[:hashLength]
}

// Relation of two machines.
type Relation int

const (
	// Undecidable: the identifiers that both have are not enough.
	Undecidable Relation = iota
	// Same machine, also after a reboot, or installed anew.
	Same
	// Other machine.
	Other
)

// Compare decides by the identifiers if a and b are one machine. A system UUID decides; it survives a new
// installation, and a clone has another one. Machine IDs decide where one of the system UUIDs is missing.
func Compare(a, b volumesv1alpha1.MachineIdentity) Relation {
	switch {
	case a.SystemUUID != "" && b.SystemUUID != "":
		return relation(a.SystemUUID == b.SystemUUID)
	case a.MachineID != "" && b.MachineID != "":
		return relation(a.MachineID == b.MachineID)
	}
	return Undecidable
}

// Registered compares the machine that has registered the Node with the one whose agent reports to nvs. Another machine
// may have its name by now, and a fence of that one proves nothing of what the first one has mounted.
func Registered(node *corev1.Node, nvs *volumesv1alpha1.NodeVolumeState) Relation {
	return Compare(New(node.Status.NodeInfo.SystemUUID, node.Status.NodeInfo.MachineID), nvs.Status.Machine)
}

// ReportedByAnother reports whether the agent's report is of another machine than the one that registered the Node, or
// of another boot of it. What is asserted of the Node is then about a life of which no agent has reported: the kubelet
// may have mounted since, and the machine that reported may run on under another name.
func ReportedByAnother(node *corev1.Node, nvs *volumesv1alpha1.NodeVolumeState) bool {
	registered, reported := node.Status.NodeInfo.BootID, nvs.Status.BootID
	return Registered(node, nvs) == Other || registered != "" && reported != "" && registered != reported
}

func relation(equal bool) Relation {
	if equal {
		return Same
	}
	return Other
}

// Others are the lines of nvs of what other machines than self use. A line names its machine, or is of the machine that
// wrote the status. recorded reports whether the own disk has a record of the use: it decides where the system UUIDs
// cannot. A use whose machine is not known is taken for one of self. One that names no attachment, and that no entry
// can name, is of Unnamed.
func Others(self volumesv1alpha1.MachineIdentity, nvs *volumesv1alpha1.NodeVolumeState,
	recorded func(line *volumesv1alpha1.NodeVolume) bool) []volumesv1alpha1.NodeVolume {
	var others []volumesv1alpha1.NodeVolume
	for i := range nvs.Status.Volumes {
		line := &nvs.Status.Volumes[i]
		user := UserOf(nvs, line)
		if !line.InUse || Compare(self, user) != Other {
			continue
		}
		if (self.SystemUUID == "" || user.SystemUUID == "") && recorded(line) {
			continue
		}
		line = line.DeepCopy()
		line.Machine = &user
		if line.AttachmentUID == "" && handshake.AttachmentOf(nvs, line.VolumeName) == nil {
			line.AttachmentUID = Unnamed(user)
		}
		others = append(others, *line)
	}
	return others
}

// Unknown are the volumes that nvs has in use of a machine that it does not identify, as agents of earlier releases
// report, in another boot than this one, and of which the own disk has no record. They are taken for volumes of self.
func Unknown(boot string, nvs *volumesv1alpha1.NodeVolumeState,
	recorded func(line *volumesv1alpha1.NodeVolume) bool) []string {
	var unknown []string
	for i := range nvs.Status.Volumes {
		line := &nvs.Status.Volumes[i]
		user := UserOf(nvs, line)
		known := user.SystemUUID != "" || user.MachineID != ""
		if line.InUse && !known && user.BootID != boot && !recorded(line) {
			unknown = append(unknown, line.VolumeName)
		}
	}
	return unknown
}

// Unnamed stands for the attachments that a machine's kubelet used and that nothing names, so that an administrator can
// declare that these uses have ended too.
func Unnamed(m volumesv1alpha1.MachineIdentity) types.UID {
	return types.UID("machine-" + cmp.Or(m.SystemUUID, m.MachineID))
}

// UserOf is the machine that uses what the line is about.
func UserOf(nvs *volumesv1alpha1.NodeVolumeState,
	line *volumesv1alpha1.NodeVolume) volumesv1alpha1.MachineIdentity {
	if line.Machine != nil {
		return *line.Machine
	}
	user := nvs.Status.Machine
	user.BootID = nvs.Status.BootID
	return user
}

// Of is nvs without what other machines use.
func Of(self volumesv1alpha1.MachineIdentity, nvs *volumesv1alpha1.NodeVolumeState,
	recorded func(line *volumesv1alpha1.NodeVolume) bool) *volumesv1alpha1.NodeVolumeState {
	others := Others(self, nvs, recorded)
	if len(others) == 0 {
		return nvs
	}
	own := nvs.DeepCopy()
	own.Status.Volumes = slices.DeleteFunc(own.Status.Volumes, func(line volumesv1alpha1.NodeVolume) bool {
		return slices.ContainsFunc(others, func(o volumesv1alpha1.NodeVolume) bool {
			return o.VolumeName == line.VolumeName && *o.Machine == UserOf(nvs, &line) &&
				(o.AttachmentUID == line.AttachmentUID || line.AttachmentUID == "")
		})
	})
	return own
}

// Describe names the machine for a person.
func Describe(m volumesv1alpha1.MachineIdentity) string {
	var parts []string
	for _, p := range []struct{ what, is string }{
		{"system UUID", m.SystemUUID}, {"machine ID", m.MachineID}, {"boot ID", m.BootID},
	} {
		if p.is != "" {
			parts = append(parts, p.what+" "+p.is)
		}
	}
	if len(parts) == 0 {
		return "unknown"
	}
	return strings.Join(parts, ", ")
}

// separator is in no node name.
const separator = "_"

// Holder is the holderIdentity of the Lease of a node's agent.
func Holder(node string, m volumesv1alpha1.MachineIdentity) string {
	if m.SystemUUID == "" && m.MachineID == "" {
		return node
	}
	return strings.Join([]string{node, m.SystemUUID, m.MachineID}, separator)
}

// HolderOf is the machine in a holderIdentity. One of an earlier release names none.
func HolderOf(holder string) volumesv1alpha1.MachineIdentity {
	parts := strings.Split(holder, separator)
	if len(parts) != 3 {
		return volumesv1alpha1.MachineIdentity{}
	}
	return volumesv1alpha1.MachineIdentity{SystemUUID: parts[1], MachineID: parts[2]}
}
