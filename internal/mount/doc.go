/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package mount is the only place of Hawser that mounts, unmounts or runs a program on the node.
//
// It reads the kernel's mount table, tells when that table changes, binds and unbinds directories and
// device nodes, and asks filesystems and devices for what they are. Three rules hold everywhere:
//
//   - Every call takes a context. A call into the kernel that hangs (a dead NFS server) keeps a goroutine
//     of its own; its caller gets a *PendingError when the context ends, and the path stays busy until
//     the kernel answers. What is pending is uncertain: never "not mounted".
//   - Nothing is unmounted lazily unless asked for, and nothing is ever deleted recursively.
//   - What a tenant can name (a subPath) is resolved by the kernel beneath the volume's root, without
//     symbolic links, and bound by its file descriptor, so that no race leads outside.
//
// It needs Linux 5.12: openat2 (5.6), open_tree and move_mount (5.2) and mount_setattr (5.12). There is
// deliberately no weaker way for older kernels; there, the calls fail and say what is missing.
package mount
