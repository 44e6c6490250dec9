/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package csi calls the CSI node plugins of the node. It finds them as the kubelet does, by the sockets in the
// kubelet's plugin registration directory.
//
// Every call opens a new connection to the driver's socket, which takes less than a millisecond. A driver that is down
// can then be distinguished from a driver that died during the call. If no part of a request was sent, the call had no
// effect and the outcome is Transient at once. The caller does not wait for the driver: the registry signals its
// return. A cached connection would first send a request that no driver receives. The outcome of a request without an
// answer is uncertain until its deadline.
package csi
