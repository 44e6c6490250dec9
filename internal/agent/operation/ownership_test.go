/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package operation

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/failure"
	"github.com/hawser-io/hawser/internal/agent/record"
)

// walked gives five files to a group, and then goes on until its context ends.
type walked struct{ Mounts }

func (walked) SetOwnership(ctx context.Context, _ string, _ int64, _ corev1.PodFSGroupChangePolicy,
	progress func(int)) error {
	progress(5)
	<-ctx.Done()
	return ctx.Err()
}

func TestAChangeOfOwnershipReportsItsProgressAndSaysWhatWasInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorks()
		env := w.environment()
		env.Mounts = walked{}
		u := record.Use{Intent: volumesv1alpha1.IntentReference{Namespace: "ns", Name: "intent", UID: "intent"},
			Mount: &volumesv1alpha1.MountSpec{}}
		ended := make(chan error, 1)
		go func() { ended <- env.walkToOwn(t.Context(), w.volume, u, 7) }()
		<-time.After(slowCall)
		_, progress := w.noted()
		for _, part := range []string{"ns/intent", "fsGroup 7", "5 files so far"} {
			if !strings.Contains(progress, part) {
				t.Errorf("progress of giving the files of intent ns/intent to a group: %q, want it to contain %q", progress,
					part)
			}
		}
		w.still = false
		w.volume.NoteRequeue()
		err := <-ended
		if !errors.Is(err, failure.ErrChanged) || !strings.Contains(err.Error(), "setting fsGroup of volume vol") {
			t.Errorf("giving the files of intent ns/intent to a group, interrupted: error %v, want %v of volume vol", err,
				failure.ErrChanged)
		}
	})
}
