/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package inline

import (
	"context"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/mount"
)

// Mounts is what the plugin needs of the node's mounts. Each call has a deadline of its own.
type Mounts interface {
	Table() (*mount.Table, error)
	// OpenMount is mount.Mounter's.
	OpenMount(ctx context.Context, path string) (*os.File, error)
	BindFile(ctx context.Context, source *os.File, target string, readOnly bool, options []string) error
	// BindAlone is mount.Mounter's.
	BindAlone(ctx context.Context, source *os.File, target string, readOnly bool) error
	Unmount(ctx context.Context, path string) error
	EnsureDir(ctx context.Context, path string, perm fs.FileMode) error
	RemoveMountPoint(ctx context.Context, path string) error
	MakeDirectory(ctx context.Context, path, label string) error
	MakePlace(ctx context.Context, dir, place string) error
	ClearPlace(ctx context.Context, place mount.Place) error
}

// Publication is what the agent has published for an intent.
type Publication struct {
	// VolumeName is the unique name of the volume.
	VolumeName    string
	AttachmentUID types.UID
	Path          string
	// Source is what the mount table shows at Path, and Whole the same of the whole volume, if Path has a part of it.
	Source, Whole string
	// SinglePod: the access mode of the volume is ReadWriteOncePod.
	SinglePod bool
	// Unhealthy is the health that the driver reports, while it reports a problem.
	Unhealthy *volumesv1alpha1.Health
}

// Intents are the node's intents and what the agent has published for them.
type Intents interface {
	// Cached returns the intent from the node's cache, or nil. The cache has the intents of this node only.
	Cached(ctx context.Context, key types.NamespacedName) (*volumesv1alpha1.VolumeAttachmentIntent, error)
	// Live reads the intent from the API server.
	Live(ctx context.Context, key types.NamespacedName) (*volumesv1alpha1.VolumeAttachmentIntent, error)
	// Published returns what is published for the intent by the record and the mount table, or nil while nothing is that
	// pods may use.
	Published(intent *volumesv1alpha1.VolumeAttachmentIntent) (*Publication, error)
	// InNamespace lists the node's intents in the namespace, from the cache.
	InNamespace(ctx context.Context, namespace string) ([]*volumesv1alpha1.VolumeAttachmentIntent, error)
	// ForcedAway reports whether the attachment of a bind was taken away while something of it is on the node.
	ForcedAway(b record.PodBind) bool
	// OwnDevice reports whether the volume of a bind has a block device of its own, so that the kernel is asked about it
	// before the volume is released.
	OwnDevice(b record.PodBind) bool
	// Pod reads the pod from the API server.
	Pod(ctx context.Context, pod record.PodReference) (*corev1.Pod, error)
}

// Options of a Plugin.
type Options struct {
	NodeName, Version string
	Paths             record.Paths
	BootID            string
	Mounts            Mounts
	Pods              *record.PodBinds
	Intents           Intents
	Changes           *Changes
	Recorder          events.EventRecorder
	Clock             clock.WithTicker
	Log               logr.Logger
	// FileLabel is the SELinux label of the node's container files; empty without SELinux.
	FileLabel func() (string, error)
	// Booted returns when the node was started.
	Booted func() time.Time
	// Released is called when a pod has ended to use the volume.
	Released func(volumeName string)
	// Enqueue has ReconcilePlace called for the place.
	Enqueue func(place Place)
	// Held is called with what keeps the bind of a place from being taken away.
	Held func(place Place, held *mount.HeldError)
	// Step is called between any two parts of a call, with their names; tests stop the agent there.
	Step func(name string)
}

// Plugin is the node plugin. It is safe for concurrent use.
type Plugin struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedNodeServer
	Options
	targets targetLocks
	places  places
	holds   holds
	// background are the reconciles of places that go on after their call.
	background sync.WaitGroup
}

var (
	_ csi.NodeServer     = (*Plugin)(nil)
	_ csi.IdentityServer = (*Plugin)(nil)
)

// New returns a plugin, which serves nothing before Serve.
func New(o Options) *Plugin {
	return &Plugin{Options: o, targets: targetLocks{held: map[string]chan struct{}{}},
		places: places{ending: map[string]bool{}, changing: map[string]*changing{}},
		holds:  holds{clock: o.Clock, at: map[string]*hold{}}}
}

const (
	// answerBefore the caller's deadline a call ends, so that the kubelet gets its reason.
	answerBefore = 5 * time.Second
	// longestWait is for a caller without a deadline. It is the kubelet's.
	longestWait = 2 * time.Minute
	// longestUnseen is how long a call waits for an intent that the node does not see. Its pod may be one that was deleted
	// before it had an intent, and a pod cannot end while the kubelet waits. A manager that takes over needs less.
	longestUnseen = 30 * time.Second
	// longestFirst is how long the start of a pod waits until its directory shows what is published.
	longestFirst = 3 * time.Second
	// longestRead is how long a directory waits for the API server to answer about its pod. The end of the pod waits
	// too meanwhile, and it must not need an API server.
	longestRead = 10 * time.Second
	// reportWaitAfter is after how long an event on the pod names what its volume waits for. The kubelet reports
	// nothing before the call ends.
	reportWaitAfter = 10 * time.Second
	// targetDirMode is the kubelet's for the directories of volumes.
	targetDirMode = 0o750
)
