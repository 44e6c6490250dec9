/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package v1alpha1

// Unlisted counts the publications that are not among those listed.
func (v *NodeVolume) Unlisted() int { return max(int(v.PublicationCount)-len(v.Publications), 0) }

// HasPublications reports whether the volume is published, also where no publication is listed.
func (v *NodeVolume) HasPublications() bool { return len(v.Publications)+v.Unlisted() > 0 }
