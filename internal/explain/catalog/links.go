/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package catalog

// Reasons of links that cannot be followed, and of files.
const (
	Missing      = "ObjectMissing"
	Forbidden    = "ObjectForbidden"
	NotInstalled = "HawserNotInstalled"
	Unreadable   = "ObjectUnreadable"
	Partial      = "ListCut"
	FileUnknown  = "FileKindUnknown"
	FileNew      = "FileNotApplied"
	FileChange   = "FileChangesFixedField"
)

// links are about what could not be read, and about files.
var links = []Entry{
	{Code: "HWS801", Reason: Missing, Level: Problem, Depth: Direct, Acts: Author,
		Says: "An object that another one names does not exist.",
		Way:  "Create it, or correct the name."},
	{Code: "HWS802", Reason: Forbidden, Level: Problem, Depth: Symptom, Acts: Cluster,
		Says: "You may not read this object, so what it would explain is missing here.",
		Way:  "Ask an administrator for the right, or to run the command.",
		Run:  []string{"kubectl auth can-i --list"}},
	{Code: "HWS803", Reason: NotInstalled, Level: Note, Depth: Symptom, Acts: Cluster,
		Says: "Hawser is not installed in this cluster. The report is about Kubernetes' own objects."},
	{Code: "HWS804", Reason: Unreadable, Level: Problem, Depth: Symptom, Acts: Cluster,
		Says: "The API server did not answer for this object, so what it would explain is missing here."},
	{Code: "HWS805", Reason: Partial, Level: Note, Depth: Symptom,
		Says: "The list is long, and only its beginning was read."},
	{Code: "HWS901", Reason: FileUnknown, Level: Note, Depth: Symptom,
		Says: "The file has an object of a kind that this command does not analyse."},
	{Code: "HWS902", Reason: FileNew, Level: Note, Depth: Symptom,
		Says: "The object comes from a file. The report shows what it would meet in the cluster."},
	{Code: "HWS903", Reason: FileChange, Level: Problem, Depth: Root, Acts: Author,
		Says: "The file changes a field that cannot be changed. The API server would refuse it.",
		Way:  "Use another name, and delete the old object."},
}
