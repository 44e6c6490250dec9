/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package doctor

import (
	"regexp"
	"slices"
	"strings"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/explain"
	"github.com/hawser-io/hawser/internal/explain/catalog"
)

// driverErrors are causes that one driver can have several of: its answer distinguishes them.
var driverErrors = map[string]bool{
	volumesv1alpha1.ReasonAttachFailed: true, catalog.AttachEvent: true, catalog.MountFailed: true,
	catalog.ProvisioningFailed: true, catalog.ResizeFailed: true, catalog.NodeResizeFailed: true,
	volumesv1alpha1.ReasonStageFailed: true, volumesv1alpha1.ReasonPublishFailed: true,
	volumesv1alpha1.ReasonExpandFailed: true, volumesv1alpha1.ReasonDetachFailed: true,
}

// apart is what distinguishes causes of one code within a group: the names in its sentence, or what the driver answers.
// It is empty for all others.
func apart(cause explain.Finding, names ...string) string {
	switch {
	case cause.Says != catalog.OfReason(cause.Reason).Says && cause.Reason != catalog.Outdated:
		return " " + cause.Says
	case driverErrors[cause.Reason]:
		return " " + withoutIDs(cause.Detail, names...)
	}
	return ""
}

var (
	quoted = regexp.MustCompile(`"[^"]*"`)
	word   = regexp.MustCompile(`[A-Za-z0-9][A-Za-z0-9._-]*`)
)

// withoutIDs is a message without the names of its objects, and without all that has a digit, as IDs have.
func withoutIDs(message string, names ...string) string {
	message = quoted.ReplaceAllString(explain.WithoutTries(message), "#")
	return word.ReplaceAllStringFunc(message, func(w string) string {
		if strings.ContainsAny(w, "0123456789") || slices.Contains(names, strings.TrimRight(w, ".")) {
			return "#"
		}
		return w
	})
}
