/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

// failures are what is known of the steps of one volume that failed.
type failures map[act]*failure

// ordered lists the failures of what is planned, in the plan's order.
func (fs failures) ordered(f facts) []*failure {
	var ordered []*failure
	for _, a := range plan(f) {
		if failed := fs[a]; failed != nil {
			ordered = append(ordered, failed)
		}
	}
	return ordered
}
