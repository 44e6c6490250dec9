/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package record

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/mount"
)

// PodBind is the bind mount of an intent's publication in the directory of a pod. Its record is written before the bind
// is made and removed after it is undone.
type PodBind struct {
	Schema int `json:"schema"`
	// Target is where the kubelet has the volume of the pod. It names the record.
	Target string       `json:"target"`
	Pod    PodReference `json:"pod"`
	// Intent whose publication it shows. Empty where the record itself was lost and the mount does not reveal it.
	Intent volumesv1alpha1.IntentReference `json:"intent"`
	// VolumeName is the unique name of the volume.
	VolumeName    string    `json:"volumeName"`
	AttachmentUID types.UID `json:"attachmentUID"`
	// Source is what the mount table shows of the publication, and so of the bind: device numbers and root.
	Source string `json:"source"`
	// Whole is the same of the whole volume. Empty where Source is that.
	Whole    string `json:"whole,omitempty"`
	ReadOnly bool   `json:"readOnly,omitempty"`
	BootID   string `json:"bootID"`
	// Directory is the target of the pod's directory in which the bind has its place; empty for a bind that is the whole
	// volume of a pod. The record of a directory itself names its own target, and no volume.
	Directory string `json:"directory,omitempty"`
	// Selector of the intents that a directory shows. Empty where the record was lost, and in every other record.
	Selector string `json:"selector,omitempty"`
}

// IsDirectory reports whether it is the record of a directory.
func (b PodBind) IsDirectory() bool { return b.Directory != "" && b.Directory == b.Target }

// Volume is what the mount table shows of the whole volume. Its root is the same whatever the volume's users rename.
func (b PodBind) Volume() (e mount.Entry, known bool) { return ParseSource(cmp.Or(b.Whole, b.Source)) }

// HasPlace reports whether it is the record of a bind that has its place in a directory.
func (b PodBind) HasPlace() bool { return b.Directory != "" && b.Directory != b.Target }

// PodReference names one pod.
type PodReference struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
}

// Object refers to the pod in an event.
func (p PodReference) Object() *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Pod",
		Namespace: p.Namespace, Name: p.Name, UID: p.UID}
}

// String is the pod's namespace and name. A pod of which only the UID is known has neither.
func (p PodReference) String() string {
	if p.Name == "" {
		return "with UID " + string(p.UID)
	}
	return p.Namespace + "/" + p.Name
}

// PodBindStore keeps the records of pod binds, one file each.
type PodBindStore struct {
	Dir string
	// Replace is Host.ReplaceFile.
	Replace func(path string, data []byte) error
}

// Path is the file of the bind's record.
func (s PodBindStore) Path(target string) string { return filepath.Join(s.Dir, Hash(target)+Suffix) }

// Load reads every record, and clears away what an interrupted save left behind.
func (s PodBindStore) Load() ([]PodBind, []Broken, error) {
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("making the directory of pod binds: %w", err)
	}
	entries, err := os.ReadDir(s.Dir)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the directory of pod binds: %w", err)
	}
	var binds []PodBind
	var broken []Broken
	for _, e := range entries {
		path := filepath.Join(s.Dir, e.Name())
		switch {
		case strings.HasPrefix(e.Name(), tempPrefix):
			if err := ignoreNotExist(os.Remove(path)); err != nil {
				return nil, nil, fmt.Errorf("removing an unfinished record: %w", err)
			}
		case strings.HasSuffix(e.Name(), Suffix):
			b, err := readPodBind(path)
			if err != nil {
				broken = append(broken, Broken{Name: e.Name(), Err: err})
				continue
			}
			binds = append(binds, b)
		}
	}
	return binds, broken, nil
}

func readPodBind(path string) (PodBind, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return PodBind{}, fmt.Errorf("reading the record of a pod bind: %w", err)
	}
	var b PodBind
	if err := json.Unmarshal(data, &b); err != nil {
		return b, fmt.Errorf("parsing the record of a pod bind: %w", err)
	}
	if b.Schema != Schema {
		return b, fmt.Errorf("parsing the record of a pod bind: schema %d is not known", b.Schema)
	}
	if name := Hash(b.Target) + Suffix; name != filepath.Base(path) {
		return b, fmt.Errorf("parsing the record of a pod bind: it names target %q, whose record is %s", b.Target, name)
	}
	return b, nil
}

// Save writes the record and returns once it is on the disk.
func (s PodBindStore) Save(b PodBind) error {
	b.Schema = Schema
	data, err := json.MarshalIndent(b, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the record of a pod bind: %w", err)
	}
	if err := s.Replace(s.Path(b.Target), data); err != nil {
		return fmt.Errorf("writing the record of a pod bind: %w", err)
	}
	return nil
}

// Remove deletes the record of the target. One that is not there is done.
func (s PodBindStore) Remove(target string) error { return s.removeFile(filepath.Base(s.Path(target))) }

// removeFile deletes a record by the name of its file.
func (s PodBindStore) removeFile(name string) error {
	err := os.Remove(filepath.Join(s.Dir, name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("removing the record of a pod bind: %w", err)
	}
	return syncDir(s.Dir)
}
