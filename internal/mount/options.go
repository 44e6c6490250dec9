/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package mount

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// attribute is how one option changes a mount's attributes.
type attribute struct{ set, clear uint64 }

// attributes are the options that belong to a mount, not to its filesystem. Only these can differ between bind mounts.
var attributes = map[string]attribute{
	"defaults":    {},
	"bind":        {},
	"ro":          {set: unix.MOUNT_ATTR_RDONLY},
	"rw":          {clear: unix.MOUNT_ATTR_RDONLY},
	"nosuid":      {set: unix.MOUNT_ATTR_NOSUID},
	"suid":        {clear: unix.MOUNT_ATTR_NOSUID},
	"nodev":       {set: unix.MOUNT_ATTR_NODEV},
	"dev":         {clear: unix.MOUNT_ATTR_NODEV},
	"noexec":      {set: unix.MOUNT_ATTR_NOEXEC},
	"exec":        {clear: unix.MOUNT_ATTR_NOEXEC},
	"nosymfollow": {set: unix.MOUNT_ATTR_NOSYMFOLLOW},
	"symfollow":   {clear: unix.MOUNT_ATTR_NOSYMFOLLOW},
	"nodiratime":  {set: unix.MOUNT_ATTR_NODIRATIME},
	"diratime":    {clear: unix.MOUNT_ATTR_NODIRATIME},
	// The access time options exclude each other, so each clears the whole field before it sets its value.
	"noatime":     {set: unix.MOUNT_ATTR_NOATIME, clear: unix.MOUNT_ATTR__ATIME},
	"relatime":    {set: unix.MOUNT_ATTR_RELATIME, clear: unix.MOUNT_ATTR__ATIME},
	"atime":       {set: unix.MOUNT_ATTR_RELATIME, clear: unix.MOUNT_ATTR__ATIME},
	"strictatime": {set: unix.MOUNT_ATTR_STRICTATIME, clear: unix.MOUNT_ATTR__ATIME},
}

// bindAttributes converts options to attributes. Of contradictory options, the later one applies. readOnly is separate
// from the options and overrides rw.
func bindAttributes(readOnly bool, options []string) (*unix.MountAttr, error) {
	attr := &unix.MountAttr{}
	for _, option := range options {
		a, ok := attributes[option]
		if !ok {
			return nil, fmt.Errorf("%w: %q cannot be set on a bind mount", ErrOption, optionName(option))
		}
		attr.Attr_set = attr.Attr_set&^a.clear | a.set
		attr.Attr_clr = attr.Attr_clr&^a.set | a.clear
	}
	if readOnly {
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
		attr.Attr_clr &^= unix.MOUNT_ATTR_RDONLY
	}
	return attr, nil
}

// optionName removes an option's value, which may be a password.
func optionName(option string) string {
	key, _, _ := strings.Cut(option, "=")
	return key
}
