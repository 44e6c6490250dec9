/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package docs runs the kubectl commands of the documentation against an API server in which the objects that they name
// exist. A command has to be accepted, or to be in a list of exceptions with the reason.
//
// What changes objects is only tried (--dry-run=server): testdata/bin/kubectl adds that. Placeholders such as NODE are
// replaced by names of objects. The examples are applied for real before.
package docs
