/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package failure_test

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/failure"
	"github.com/hawser-io/hawser/internal/mount"
)

func TestASubPathIsTriedAgainOnlyIfAFileIsInItsPlace(t *testing.T) {
	for _, test := range []struct {
		err     error
		stalled bool
	}{
		{fmt.Errorf("%w: it leads outside", mount.ErrSubPath), true},
		{fmt.Errorf("%w: it leads through a file: %w", mount.ErrSubPath, unix.ENOTDIR), false},
	} {
		f := failure.New(nil, "publish", "", test.err, time.Now())
		if f.Reason != volumesv1alpha1.ReasonSubPathInvalid || f.Stalled != test.stalled {
			t.Errorf("%v: reason %s, stalled %t; want %s, %t", test.err, f.Reason, f.Stalled,
				volumesv1alpha1.ReasonSubPathInvalid, test.stalled)
		}
	}
}
