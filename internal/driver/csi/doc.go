/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package csi speaks to the CSI node plugins of the node and finds them as the kubelet does, by the sockets in its plugin
// registration directory.
//
// Every call dials the driver's socket anew, as that costs less than a millisecond and keeps one thing
// simple: a driver that is down or restarting is told apart from one that broke off. If nothing of a request
// was sent, nothing can have happened and the outcome is Transient, at once, without waiting for the driver
// to come back; the registry tells when it does. A cached connection would send into the void first, and
// what is sent and not answered is uncertain until its deadline.
package csi
