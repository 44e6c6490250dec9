/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package csi

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/driver"
)

func TestAFailedStageHasThePreciseCauseFromTheMessage(t *testing.T) {
	answered := progress{sent: true, answered: true}
	cases := []struct{ message, code string }{
		{`the volume already contains filesystem "btrfs", "ext4" was asked for`, volumesv1alpha1.ReasonFilesystemMismatch},
		{`exec: "mkfs.xfs": executable file not found in $PATH`, volumesv1alpha1.ReasonFormatToolMissing},
		{`mkfs.xfs is not installed on node "a"`, volumesv1alpha1.ReasonFormatToolMissing},
		{`mount: unknown filesystem type 'zfs'.`, volumesv1alpha1.ReasonUnknownFSType},
		{"something else", codes.Internal.String()},
	}
	for _, c := range cases {
		err := status.Error(codes.Internal, c.message)
		if got := driver.CodeOf(nodeStage.typed(driverName, err, answered, nil)); got != c.code {
			t.Errorf("%q: code %s, want %s", c.message, got, c.code)
		}
		if got := driver.CodeOf(nodeUnstage.typed(driverName, err, answered, nil)); got != codes.Internal.String() {
			t.Errorf("%q of an unstage, which formats nothing: code %s, want %s", c.message, got, codes.Internal)
		}
	}
}
