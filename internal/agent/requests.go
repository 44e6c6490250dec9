/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"fmt"
	"slices"
	"strings"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// allowedOptions are the mount options that an intent may ask for. None of them lets its author do more on the node.
var allowedOptions = []string{"noexec", "nodev", "nosuid", "noatime", "nodiratime", "relatime", "lazytime"}

// refused tells why the use must not be published. The API server refuses such an intent, but may have stored it under an earlier rule.
func (u Use) refused() error {
	if u.Mount == nil {
		return nil
	}
	notAllowed := func(option string) bool { return !slices.Contains(allowedOptions, option) }
	if i := slices.IndexFunc(u.Mount.Options, notAllowed); i >= 0 {
		key, _, _ := strings.Cut(u.Mount.Options[i], "=") // the value may be a password
		return &problem{reason: volumesv1alpha1.ReasonMountNotAllowed, stalled: true, message: fmt.Sprintf(
			"an intent may not ask for the mount option %q, only for %s; others are for administrators, in mountOptions of the PersistentVolume or StorageClass",
			key, strings.Join(allowedOptions, ", "))}
	}
	return nil
}
