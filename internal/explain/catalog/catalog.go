/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package catalog has one entry for each finding that `kubectl hawser` can report: a stable code, a sentence, the actor
// that ends the wait, and the commands for that. Every condition reason of the API has an entry.
//
// A code never changes its meaning and is never given to another entry, because links and scripts contain it.
package catalog

import (
	"regexp"
	"slices"
	"strings"

	"github.com/hawser-io/hawser/internal/version"
)

// Level is how much a finding matters.
type Level string

const (
	// Fine means that all is well.
	Fine Level = "Fine"
	// Note is worth knowing and needs no action.
	Note Level = "Note"
	// Waiting means that a component works on it.
	Waiting Level = "Waiting"
	// Problem means that an actor has to do something.
	Problem Level = "Problem"
)

// Depth is how near a finding is to the cause.
type Depth int

const (
	// Symptom follows from another finding, as a rule.
	Symptom Depth = iota
	// Direct is what an object itself reports.
	Direct
	// Root explains what the objects that depend on it report.
	Root
	// Chief relates such a cause to the subject.
	Chief
)

// Actor is the person or component whose action ends the wait.
type Actor string

// Actors, as docs/troubleshoot.md names them.
const (
	NoActor Actor = ""
	Hawser  Actor = "Hawser"
	Driver  Actor = "the CSI driver"
	Author  Actor = "the author of the intent, claim or pod"
	Holder  Actor = "the author of the pod or intent that holds the volume"
	// PodAuthor and PodHolder are Author and Holder in a cluster without Hawser.
	PodAuthor Actor = "the author of the claim or pod"
	PodHolder Actor = "the author of the pod that holds the volume"
	Storage   Actor = "the administrator of the driver or the volume"
	OnNode    Actor = "the administrator of the node"
	Cluster   Actor = "a cluster administrator"
	User      Actor = "the author of what uses the volume, or the administrator of the node"
	Writer    Actor = "the program that wrote the condition or the event"
)

// Entry describes one kind of finding.
type Entry struct {
	// Code is HWS and three digits.
	Code string
	// Reason is the reason of a condition, or a name in the same style.
	Reason string
	// Level and Depth of the finding.
	Level Level
	Depth Depth
	// Says is what the finding means.
	Says string
	// Acts is the actor that ends the wait.
	Acts Actor
	// Way is the way out; empty where none is necessary.
	Way string
	// SaysAlone and WayAlone are those of a cluster without Hawser, where they differ.
	SaysAlone, WayAlone string
	// Run are commands with places such as {node}. Separate takes a remark off: when to run it, or what it is for.
	Run []string
	// Off is the place of a node, "node" or "holder", that may be declared to be off. For adds how.
	Off string
	// Data is true for what keeps the data of a claim that does not stay. For adds whether the data goes.
	Data bool
	// Instead are other ways out, of which For takes the first that the state of its object calls for.
	Instead []Instead
}

// URL of the section about this entry, in the pages of this version.
func (e Entry) URL() string {
	return "https://github.com/hawser-io/hawser/blob/" + version.Ref() + "/docs/reference/findings.md#" +
		strings.ToLower(e.Code)
}

// ofName matches what Kubernetes takes as the name of an object, a finalizer or a UID. A pod may name any other text as
// its claim, and a claim as its volume. A shell would run it, or kubectl take it for a flag or for several names.
var ofName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/-]*$`)

// ofSeveral are the places that may have several names.
var ofSeveral = []string{"pods", "volumes"}

// fits reports whether a place of a command may have a value.
func fits(place, value string) bool {
	names := []string{value}
	if slices.Contains(ofSeveral, place) {
		names = strings.Split(value, " ")
	}
	return !slices.ContainsFunc(names, func(name string) bool { return !ofName.MatchString(name) })
}

// Commands are those commands whose places are all known, and are names.
func (e Entry) Commands(places map[string]string) []string {
	var pairs, commands []string
	for name, value := range places {
		if fits(name, value) {
			pairs = append(pairs, "{"+name+"}", value)
		}
	}
	replacer := strings.NewReplacer(pairs...)
	for _, command := range e.Run {
		if text := replacer.Replace(command); !unresolved(text) {
			commands = append(commands, text)
		}
	}
	return commands
}

// remark begins the remark of a command. A shell that is used by hand may take it for arguments, as zsh does.
const remark = "   # "

// Separate takes the remarks off commands, and has them by their commands.
func Separate(commands []string) (run []string, remarks map[string]string) {
	for _, command := range commands {
		command, text, remarked := strings.Cut(command, remark)
		if remarked {
			if remarks == nil {
				remarks = map[string]string{}
			}
			remarks[command] = text
		}
		run = append(run, command)
	}
	return run, remarks
}

// unresolved reports whether a place is left. A JSONPath has braces too, but none before a lower case letter.
func unresolved(command string) bool {
	for i := range len(command) - 1 {
		if command[i] == '{' && command[i+1] >= 'a' && command[i+1] <= 'z' {
			return true
		}
	}
	return false
}

// all are the parts of the catalog, in the order of their codes.
var all = slices.Concat(
	fine, resolved, sets, attached, node, ready, manager, scheduling, claims, placement, upstream, links, cluster,
	preflight,
)

// All are the entries in the order of their codes. They must not be changed.
func All() []Entry { return all }

// OfReason returns the entry of a condition's reason. A reason that this program does not know, because the cluster
// runs a newer version, gets the entry UnknownReason.
func OfReason(reason string) Entry {
	for _, e := range All() {
		if e.Reason == reason {
			return e
		}
	}
	return OfReason(UnknownReason)
}
