/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package alerts makes every alert fire once. On a local cluster, a real Prometheus scrapes manager, operator, agents
// and kube-state-metrics, with TLS and tokens as in a cluster. The test makes the fault of each alert, waits until
// Prometheus pushes the alert, repairs the fault and waits until the alert has resolved. For the situations that
// docs/troubleshoot.md lists, it also compares what kubectl shows while the alert fires.
//
// The rules are those that Hawser ships. All their durations are divided by one number, because nobody waits for
// hours; a test holds the rest of the rules to what is shipped.
//
// make test-alerts runs it, as root.
package alerts
