/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package ledger

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Call is one call as the ledger recorded it.
type Call struct {
	Entry
	// Done is the code of the work. It is empty if the work did not begin or its end is unknown.
	Done string
	// Answer is the code that the caller got. It is empty if the process died before, or the call is still running.
	Answer string
}

// Calls joins the entries of each call, ordered by start.
func Calls(entries []Entry) []Call {
	var calls []Call
	index := map[int64]int{}
	for _, entry := range entries {
		if entry.Phase == Start {
			index[entry.Call] = len(calls)
			calls = append(calls, Call{Entry: entry})
			continue
		}
		i, ok := index[entry.Call]
		if !ok {
			continue
		}
		switch entry.Phase {
		case Effect:
			calls[i].Done = entry.Code
		case End:
			calls[i].Answer = entry.Code
		}
		calls[i].Volume, calls[i].Message = entry.Volume, entry.Message
	}
	return calls
}

// Violation is a forbidden call or a forbidden effect.
type Violation struct {
	Entry
	Reason string
}

// String formats the violation as one line.
func (v Violation) String() string {
	return fmt.Sprintf("#%d %s volume %s node %s: %s", v.Seq, v.Method, v.Volume, v.Node, v.Reason)
}

// PublishedTwice returns the publications of an exclusive volume that took effect while it was published elsewhere.
func PublishedTwice(entries []Entry) []Violation {
	return judge(entries, func(w *world, e Entry) string {
		if !w.effective(e, "ControllerPublishVolume") || strings.HasPrefix(e.AccessMode, "MULTI_NODE_") {
			return ""
		}
		for _, node := range slices.Sorted(maps.Keys(w.published[e.Volume])) {
			if node != e.Node {
				return "is published to node " + node
			}
		}
		return ""
	})
}

// UnpublishedWhileStaged returns the calls of ControllerUnpublishVolume that began while the volume was staged on that
// node. A stage that was running, or whose end is unknown, counts. A forced detach is rightly one of them.
func UnpublishedWhileStaged(entries []Entry) []Violation {
	return judge(entries, func(w *world, e Entry) string {
		if e.Phase != Start || e.Method != "ControllerUnpublishVolume" {
			return ""
		}
		key := at{e.Volume, e.Node}
		switch {
		case w.staged[key]:
			return "is staged there"
		case len(w.staging[key]) > 0:
			return "may be staged there: the end of a NodeStageVolume is unknown"
		}
		return ""
	})
}

// UsedUnattached returns the stages and publications that began on a node to which the volume was not published.
func UsedUnattached(entries []Entry) []Violation {
	return judge(entries, func(w *world, e Entry) string {
		uses := e.Method == "NodeStageVolume" || e.Method == "NodePublishVolume"
		if e.Phase != Start || !uses || w.published[e.Volume][e.Node] {
			return ""
		}
		return "is not published to the node"
	})
}

type at struct{ volume, node string }

// world is the effect of all calls up to an entry.
type world struct {
	published map[string]map[string]bool
	staged    map[at]bool
	staging   map[at]map[int64]bool
}

func judge(entries []Entry, rule func(*world, Entry) string) []Violation {
	w := &world{map[string]map[string]bool{}, map[at]bool{}, map[at]map[int64]bool{}}
	var found []Violation
	for _, entry := range entries {
		if reason := rule(w, entry); reason != "" {
			found = append(found, Violation{entry, reason})
		}
		w.apply(entry)
	}
	return found
}

func (w *world) effective(e Entry, method string) bool {
	return e.Phase == Effect && e.Method == method && e.Code == "OK"
}

func (w *world) apply(e Entry) {
	key := at{e.Volume, e.Node}
	switch {
	case e.Phase == Start && e.Method == "NodeStageVolume":
		if w.staging[key] == nil {
			w.staging[key] = map[int64]bool{}
		}
		w.staging[key][e.Call] = true
	case w.effective(e, "ControllerPublishVolume"):
		if w.published[e.Volume] == nil {
			w.published[e.Volume] = map[string]bool{}
		}
		w.published[e.Volume][e.Node] = true
	case w.effective(e, "ControllerUnpublishVolume"):
		delete(w.published[e.Volume], e.Node)
		if e.Node == "" {
			delete(w.published, e.Volume)
		}
	case w.effective(e, "NodeUnstageVolume"):
		delete(w.staged, key)
		delete(w.staging, key)
	case e.Phase == Effect && e.Method == "NodeStageVolume":
		w.staged[key] = w.staged[key] || e.Code == "OK"
		delete(w.staging[key], e.Call)
	case e.Phase == End && e.Method == "NodeStageVolume":
		delete(w.staging[key], e.Call) // a fault ended it before its work
	case e.Phase == Note && e.Method == Reboot:
		w.reboot(e.Node)
	}
}

func (w *world) reboot(node string) {
	maps.DeleteFunc(w.staged, func(key at, _ bool) bool { return key.node == node })
	maps.DeleteFunc(w.staging, func(key at, _ map[int64]bool) bool { return key.node == node })
}
