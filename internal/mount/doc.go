/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package mount is the only package of Hawser that mounts, unmounts or runs a program on the node.
//
// It reads the kernel's mount table and signals its changes. It binds directories and device nodes, and reads the
// properties of filesystems and devices. It follows three rules:
//
//   - Every call takes a context. A call into the kernel that hangs (a dead NFS server) keeps its own goroutine. Its
//     caller gets a *PendingError when the context ends, and the path stays busy until the kernel answers. A pending
//     call is uncertain: it never means "not mounted".
//   - It unmounts lazily only on request, and never deletes recursively.
//   - The kernel resolves a path that a tenant can name (a subPath) beneath the volume's root, without symbolic links.
//     It is bound by its file descriptor, so that no race leads outside.
//
// It needs Linux 5.12: openat2 (5.6), open_tree and move_mount (5.2) and mount_setattr (5.12). It has no weaker
// fallback for older kernels: there the calls fail and name the missing feature.
package mount
