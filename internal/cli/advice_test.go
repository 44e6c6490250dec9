/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package cli

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/explain"
	"github.com/hawser-io/hawser/internal/explain/catalog"
	"github.com/hawser-io/hawser/internal/explain/facts"
)

// named are the kinds whose objects commands name.
var named = map[string]func() client.Object{
	"pod": func() client.Object { return &corev1.Pod{} }, "node": func() client.Object { return &corev1.Node{} },
	"pvc":              func() client.Object { return &corev1.PersistentVolumeClaim{} },
	"pv":               func() client.Object { return &corev1.PersistentVolume{} },
	"vai":              func() client.Object { return &volumesv1alpha1.VolumeAttachmentIntent{} },
	"vais":             func() client.Object { return &volumesv1alpha1.VolumeAttachmentIntentSet{} },
	"nvs":              func() client.Object { return &volumesv1alpha1.NodeVolumeState{} },
	"volumemanager":    func() client.Object { return &volumesv1alpha1.VolumeManager{} },
	"csinode":          func() client.Object { return &storagev1.CSINode{} },
	"csidriver":        func() client.Object { return &storagev1.CSIDriver{} },
	"storageclass":     func() client.Object { return &storagev1.StorageClass{} },
	"volumeattachment": func() client.Object { return &storagev1.VolumeAttachment{} },
	"lease":            func() client.Object { return &coordinationv1.Lease{} },
}

// scene is the situation in which a command would run.
type scene struct {
	*testing.T
	reader facts.Reader
}

// get reads what a command names; nil if it does not exist.
func (w scene) get(kind, name, namespace string) client.Object {
	make, ok := named[kind]
	if !ok {
		w.Fatalf("a command names a %s, which this test does not know", kind)
	}
	object := make()
	if w.reader.Get(w.Context(), client.ObjectKey{Namespace: namespace, Name: name}, object) != nil {
		return nil
	}
	return object
}

// namespaceOf is the value of -n in a command.
func namespaceOf(words []string) string {
	if i := slices.Index(words, "-n"); i >= 0 && i+1 < len(words) {
		return words[i+1]
	}
	return ""
}

// prevented is why a command would fail, or change nothing; empty if it would do what it is for.
func (w scene) prevented(command string) string {
	if strings.Contains(command, " #") {
		return "a shell may take its remark for arguments"
	}
	words := strings.Fields(command)
	if words[1] == "hawser" {
		return w.preventedOfPlugin(words[2:])
	}
	if len(words) < 4 || strings.HasPrefix(words[2], "-") || strings.HasPrefix(words[3], "-") ||
		strings.Contains(words[2], ",") {
		return "" // it names no object
	}
	verb, kind, name := words[1], words[2], words[3]
	if verb == "logs" || verb == "auth" {
		return ""
	}
	if verb == "uncordon" {
		kind, name = "node", words[2]
	}
	object := w.get(kind, name, namespaceOf(words))
	switch {
	case object == nil:
		return kind + " " + name + " does not exist"
	case strings.Contains(command, "finalizers") && verb == "patch":
		if object.GetDeletionTimestamp() == nil {
			return kind + " " + name + " is not being deleted"
		}
	case object.GetDeletionTimestamp() != nil && slices.Contains([]string{"delete", "patch", "label"}, verb):
		return kind + " " + name + " is being deleted already"
	case verb == "delete" && object.GetAnnotations()[volumesv1alpha1.HoldAnnotation] != "":
		return kind + " " + name + " is held, and the policy hawser-hold refuses its deletion"
	case verb == "taint":
		has := slices.ContainsFunc(object.(*corev1.Node).Spec.Taints, func(t corev1.Taint) bool {
			return t.Key == corev1.TaintNodeOutOfService
		})
		if has != strings.HasSuffix(words[4], "-") {
			return "the taint is as the command would have it already"
		}
	}
	return ""
}

// preventedOfPlugin is about commands of the plugin itself.
func (w scene) preventedOfPlugin(words []string) string {
	switch words[0] {
	case "why":
		kind, name, err := kindAndName(words[1:3])
		if err != nil {
			return err.Error()
		}
		g := &facts.Gatherer{Reader: w.reader, System: "hawser-system", Now: func() time.Time { return noon }}
		if _, err := g.Gather(w.Context(), facts.Ref{Kind: kind, Namespace: namespaceOf(words), Name: name}); err != nil {
			return err.Error()
		}
	case "top", "plan", "declare-released":
		object := w.get("nvs", words[len(words)-1], "")
		if words[0] == "declare-released" {
			object = w.get("nvs", words[1], "")
		}
		if object == nil {
			return "the node has no node state"
		}
		if words[0] == "declare-released" {
			return undeclarable(object.(*volumesv1alpha1.NodeVolumeState), words[2])
		}
	default:
		w.Errorf("hawser %s is no command that this test knows", words[0])
	}
	return ""
}

func undeclarable(state *volumesv1alpha1.NodeVolumeState, which string) string {
	_, declared := state.Annotations[volumesv1alpha1.DeclaredReleasedPrefix+which]
	of := map[string]func(*volumesv1alpha1.NodeVolume) bool{"--all-stuck": explain.Stuck(&facts.Facts{}),
		"--other-machine": explain.OfOtherMachine}[which]
	if of != nil {
		if uids, _ := explain.Undeclared(state, of); len(uids) == 0 {
			return "there is no attachment to declare released"
		}
		return ""
	}
	if declared || len(findAttachment(&facts.Facts{}, state, which)) == 0 {
		return "attachment " + which + " is declared released already, or is not there"
	}
	return ""
}

func TestEveryCommandIsPossibleInTheSituationThatWasRead(t *testing.T) {
	for _, f := range fixtures(t, noon) {
		reader := newFakeReader(t, f)
		w := scene{t, reader}
		report := explainFixture(t, f, reader, noon)
		for _, found := range slices.Concat(report.Findings, report.Notes) {
			for _, command := range found.Run {
				if why := w.prevented(command); why != "" {
					t.Errorf("%s: %s advises %q, but %s", f.name, found.Code, command, why)
				}
			}
		}
	}
}

func TestTheChainDoesNotContradictWhatWasFound(t *testing.T) {
	for _, f := range fixtures(t, noon) {
		report := explainFixture(t, f, newFakeReader(t, f), noon)
		for _, found := range report.Findings {
			for _, link := range report.Chain {
				if link.Object == found.Object && link.State == explain.Good && found.Level == catalog.Problem {
					t.Errorf("%s: %s is a problem of %s, and the chain has it as %s: %s", f.name, found.Code, found.Object,
						link.State, link.Text)
				}
			}
		}
	}
}

// ofHawser is what Hawser does. Its commands may be named everywhere.
var ofHawser = regexp.MustCompile(`\bHawser\b|\b[Aa]gent\b|\b[Ii]ntents?\b`)

func TestNothingIsExpectedOfHawserWhereItIsNotInstalled(t *testing.T) {
	for _, f := range fixtures(t, noon) {
		if f.installed {
			continue
		}
		report := explainFixture(t, f, newFakeReader(t, f), noon)
		var texts []string
		for _, found := range slices.Concat(report.Findings, report.Notes) {
			if found.Reason != catalog.NotInstalled && found.Reason != catalog.PodPlacement { // its gate is Hawser's
				texts = append(texts, found.Says, found.Detail, found.Way)
			}
		}
		for _, link := range report.Chain {
			texts = append(texts, link.Text)
		}
		for _, text := range texts {
			if ofHawser.MatchString(text) {
				t.Errorf("%s: %q, want nothing of Hawser in a cluster without it", f.name, text)
			}
		}
	}
}

// acts are the ways out that only some states leave.
var acts = []struct {
	way      *regexp.Regexp
	possible func(client.Object) bool
	want     string
}{
	{regexp.MustCompile(`(^|\. )Create the (claim|intent)\b`), func(o client.Object) bool { return o == nil }, "absent"},
	{regexp.MustCompile(`(^|\. )Delete the intent\b`), func(o client.Object) bool {
		return o != nil && o.GetDeletionTimestamp() == nil
	}, "present and not being deleted"},
}

func TestNoWayOutCreatesWhatIsThereOrDeletesWhatGoes(t *testing.T) {
	for _, f := range fixtures(t, noon) {
		reader := newFakeReader(t, f)
		w := scene{t, reader}
		report := explainFixture(t, f, reader, noon)
		subject := map[string]string{facts.KindClaim: "pvc", facts.KindIntent: "vai"}[report.Subject.Kind]
		for _, found := range slices.Concat(report.Findings, report.Notes) {
			kind := map[string]string{facts.KindClaim: "pvc", facts.KindIntent: "vai"}[found.Object.Kind]
			if kind == "" || subject == "" {
				continue
			}
			for _, act := range acts {
				if !act.way.MatchString(found.Way) {
					continue
				}
				if strings.Contains(act.way.FindString(found.Way), "claim") {
					kind = "pvc"
				}
				name := found.Object.Name
				if intent, ok := w.get("vai", name, found.Object.Namespace).(*volumesv1alpha1.VolumeAttachmentIntent); ok &&
					kind == "pvc" {
					name = intent.Spec.Volume.PersistentVolumeClaim.ClaimName
					if intent.DeletionTimestamp != nil || intent.Status.ClaimUID != "" {
						t.Errorf("%s: %s has the way out %q; want only the deletion of the intent, which is pinned or goes", f.name,
							found.Code, found.Way)
					}
				}
				if !act.possible(w.get(kind, name, found.Object.Namespace)) {
					t.Errorf("%s: %s has the way out %q for %s %s; want it only for one that is %s", f.name, found.Code, found.Way,
						kind, name, act.want)
				}
			}
		}
	}
}
