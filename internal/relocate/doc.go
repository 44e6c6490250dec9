/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package relocate decides how intents leave a node. It is pure: package facts reads, package cli acts and prints.
//
// An intent cannot change its node, so a move replaces it:
//
//	source live, no replacement   -> create the replacement
//	source live, replacement      -> wait until the replacement is Ready, or waits for nothing but the source; then
//	                                 delete the source
//	source terminating            -> wait until the node has released the volume
//	source gone                   -> wait until the replacement is Ready
//
// All of this state is in the cluster. So a move that was interrupted goes on when the command runs again.
package relocate
