/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package cli

import (
	"bytes"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/apiserver"
)

// answer runs declare-released with an answer on stdin.
func answer(t *testing.T, config *rest.Config, text string, args ...string) (stderr string, exit int) {
	t.Helper()
	return answerFrom(t, config, strings.NewReader(text), args...)
}

func answerFrom(t *testing.T, config *rest.Config, in io.Reader, args ...string) (stderr string, exit int) {
	t.Helper()
	var out, errOut bytes.Buffer
	args = append([]string{"declare-released", "--kubeconfig", apiserver.Kubeconfig(t, config)}, args...)
	exit = Run(t.Context(), args, genericiooptions.IOStreams{In: in, Out: &out, ErrOut: &errOut})
	return errOut.String(), exit
}

func TestADeclarationShowsWhatItFoundAndNeedsTheNameOfTheNode(t *testing.T) {
	config, c := apiserver.Borrow(t)
	one(t, "node-orphan-and-stuck-detach", time.Now()).create(t, c)
	declared := func() string {
		var state volumesv1alpha1.NodeVolumeState
		if err := c.Get(t.Context(), client.ObjectKey{Name: "node-b"}, &state); err != nil {
			t.Fatal(err)
		}
		return state.Annotations[volumesv1alpha1.DeclaredReleasedPrefix+"va-2"]
	}
	for _, tt := range []struct {
		name, answer string
		args         []string
		exit         int
		stderr, want string
	}{
		{"no reason", "node-b\n", []string{"node-b", "va-2"}, Failed, "reason", ""},
		{"an attachment that is not there", "node-b\n", []string{"node-b", "va-3", "--reason", "off"}, Failed, "va-3", ""},
		{"no answer", "", []string{"node-b", "va-2", "--reason", "off"}, Failed, "not declared", ""},
		{"another answer", "yes\n", []string{"node-b", "va-2", "--reason", "off"}, Failed, "not declared", ""},
		{"the name", "node-b\n", []string{"node-b", "va-2", "--reason", "off"}, Fine, "entry Detaching of", "off"},
		{"again, without a question", "", []string{"node-b", "va-2", "--reason", "scrapped", "--yes"}, Fine,
			"WARNING", "scrapped"},
	} {
		stderr, exit := answer(t, config, tt.answer, tt.args...)
		if got := declared(); exit != tt.exit || got != tt.want || !strings.Contains(stderr, tt.stderr) {
			t.Errorf("%s: exit code %d, annotation %q, stderr %q; want %d, %q and %q",
				tt.name, exit, got, stderr, tt.exit, tt.want, tt.stderr)
		}
	}
}

// input is an io.Reader that is a function.
type input func([]byte) (int, error)

func (i input) Read(p []byte) (int, error) { return i(p) }

// TestADeclarationIsAboutWhatWasShown: while the user answers, the agent of a node in use reports again.
func TestADeclarationIsAboutWhatWasShown(t *testing.T) {
	config, c := apiserver.Borrow(t)
	one(t, "node-orphan-and-stuck-detach", time.Now()).create(t, c)
	line := func(uid types.UID) volumesv1alpha1.NodeVolume {
		return volumesv1alpha1.NodeVolume{AttachmentUID: uid, VolumeName: "kubernetes.io/csi/d^" + string(uid), InUse: true,
			Publications: []volumesv1alpha1.Publication{{Path: "/p", Type: volumesv1alpha1.PublicationMount,
				Intent: volumesv1alpha1.IntentReference{
					Namespace: "shop", Name: "i", UID: "first"}}}}
	}
	for _, tt := range []struct {
		name    string
		reports func(*volumesv1alpha1.NodeVolumeStateStatus)
		exit    int
		want    bool
	}{
		{"a new use of the attachment", func(s *volumesv1alpha1.NodeVolumeStateStatus) {
			s.Volumes = append(s.Volumes, line("va-2"))
		}, Failed, false},
		{"a new use of the same path by an intent of the same name", func(s *volumesv1alpha1.NodeVolumeStateStatus) {
			s.Volumes[len(s.Volumes)-1].Publications[0].Intent.UID = "second"
		}, Failed, false},
		{"another boot", func(s *volumesv1alpha1.NodeVolumeStateStatus) { s.BootID = "later" }, Failed, false},
		{"another start of the agent", func(s *volumesv1alpha1.NodeVolumeStateStatus) {
			s.Protocol.Session++
		}, Failed, false},
		{"another attachment", func(s *volumesv1alpha1.NodeVolumeStateStatus) {
			s.Volumes = append(s.Volumes, line("va-9"))
		}, Fine, true},
	} {
		state := &volumesv1alpha1.NodeVolumeState{}
		stderr, exit := answerFrom(t, config, input(func(p []byte) (int, error) {
			if err := c.Get(t.Context(), client.ObjectKey{Name: "node-b"}, state); err != nil {
				t.Fatal(err)
			}
			before := state.DeepCopy()
			tt.reports(&state.Status)
			if err := c.Status().Patch(t.Context(), state, client.MergeFrom(before)); err != nil {
				t.Fatal(err)
			}
			return copy(p, "node-b\n"), nil
		}), "node-b", "va-2", "--reason", "off")
		if err := c.Get(t.Context(), client.ObjectKey{Name: "node-b"}, state); err != nil {
			t.Fatal(err)
		}
		_, declared := state.Annotations[volumesv1alpha1.DeclaredReleasedPrefix+"va-2"]
		if exit != tt.exit || declared != tt.want || strings.Contains(stderr, "look at it again") == tt.want {
			t.Errorf("%s: exit code %d, declared %t, stderr %q; want %d and %t", tt.name, exit, declared, stderr, tt.exit,
				tt.want)
		}
	}
}

// TestAUseThatBeginsBeforeTheAnswerIsNotDeclared: only the message of the failing release shows it.
func TestAUseThatBeginsBeforeTheAnswerIsNotDeclared(t *testing.T) {
	config, c := apiserver.Borrow(t)
	one(t, "node-orphan-and-stuck-detach", time.Now()).create(t, c)
	state := &volumesv1alpha1.NodeVolumeState{}
	fails := func(message string) {
		t.Helper()
		if err := c.Get(t.Context(), client.ObjectKey{Name: "node-b"}, state); err != nil {
			t.Fatal(err)
		}
		state.Status.Volumes = []volumesv1alpha1.NodeVolume{{VolumeName: "kubernetes.io/csi/d^s-1", AttachmentUID: "s-1",
			InUse: true, Error: &volumesv1alpha1.OperationError{Operation: "unstage", Code: "Internal", Message: message}}}
		if err := c.Status().Update(t.Context(), state); err != nil {
			t.Fatal(err)
		}
	}
	const busy = "umount: /data: target is busy"
	for _, tt := range []struct {
		which, shown, then string
		exit               int
		want               bool
	}{
		{"--all-stuck", "stuck fast", busy, Failed, false},
		{"--all-stuck", "stuck fast", "stuck faster", Fine, true},
		{"s-1", "stuck fast", busy, Failed, false},
		{"s-1", "stuck fast", "stuck faster", Fine, true},
		{"s-1", busy, busy + " (2)", Fine, true},
	} {
		if err := c.Get(t.Context(), client.ObjectKey{Name: "node-b"}, state); err != nil {
			t.Fatal(err)
		}
		state.Annotations = nil
		if err := c.Update(t.Context(), state); err != nil {
			t.Fatal(err)
		}
		fails(tt.shown)
		stderr, exit := answerFrom(t, config, input(func(p []byte) (int, error) {
			fails(tt.then)
			return copy(p, "node-b\n"), nil
		}), "node-b", tt.which, "--reason", "driver gone")
		if err := c.Get(t.Context(), client.ObjectKey{Name: "node-b"}, state); err != nil {
			t.Fatal(err)
		}
		_, declared := state.Annotations[volumesv1alpha1.DeclaredReleasedPrefix+"s-1"]
		if exit != tt.exit || declared != tt.want || strings.Contains(stderr, "look at it again") == tt.want {
			t.Errorf("%s, and the release fails by then with %q: exit code %d, declared %t, stderr %q; want %d and %t",
				tt.which, tt.then, exit, declared, stderr, tt.exit, tt.want)
		}
	}
}

func TestAttachmentsWhoseReleaseFailsAndThoseOfAnotherMachineAreDeclaredApart(t *testing.T) {
	config, c := apiserver.Borrow(t)
	one(t, "node-orphan-and-stuck-detach", time.Now()).create(t, c)
	state := &volumesv1alpha1.NodeVolumeState{}
	declared := func() (uids []string) {
		if err := c.Get(t.Context(), client.ObjectKey{Name: "node-b"}, state); err != nil {
			t.Fatal(err)
		}
		for key := range state.Annotations {
			if uid, ok := strings.CutPrefix(key, volumesv1alpha1.DeclaredReleasedPrefix); ok {
				uids = append(uids, uid)
			}
		}
		slices.Sort(uids)
		return uids
	}
	stuck := []string{"node-b", "--all-stuck", "--reason", "driver gone"}
	other := []string{"node-b", "--other-machine", "--reason", "scrapped"}
	if stderr, exit := answer(t, config, "node-b\n", stuck...); exit != Failed || !strings.Contains(stderr,
		"no failing release") {
		t.Errorf("no release fails: exit code %d, stderr %q; want %d and that none fails", exit, stderr, Failed)
	}
	if stderr, exit := answer(t, config, "node-b\n", other...); exit != Failed || !strings.Contains(stderr, "no use by") {
		t.Errorf("no other machine: exit code %d, stderr %q; want %d and that there is none", exit, stderr, Failed)
	}
	declared()
	line := func(uid, operation string, inUse bool) volumesv1alpha1.NodeVolume {
		return volumesv1alpha1.NodeVolume{VolumeName: "kubernetes.io/csi/d^" + uid, AttachmentUID: types.UID(uid),
			InUse: inUse,
			Error: &volumesv1alpha1.OperationError{Operation: operation, Code: "Internal", Message: "stuck fast"}}
	}
	ofOther := func(uid string) volumesv1alpha1.NodeVolume {
		l := line(uid, "stage", true)
		l.Machine = &volumesv1alpha1.MachineIdentity{SystemUUID: "0123456789abcdef"}
		return l
	}
	// These are in use: by what the agent names, by what the driver names, and by an intent that wants the volume.
	inUse := map[string]volumesv1alpha1.NodeVolume{}
	for uid, e := range map[string]volumesv1alpha1.OperationError{
		"u-pods":    {Operation: "unpublish", Code: volumesv1alpha1.ReasonUsedByPods, Message: "stuck fast"},
		"u-device":  {Operation: "unstage", Code: volumesv1alpha1.ReasonDeviceHeld, Message: "stuck fast"},
		"u-kubelet": {Operation: "unstage", Code: volumesv1alpha1.ReasonSharedByKubelet, Message: "stuck fast"},
		"u-busy":    {Operation: "unstage", Code: "Internal", Message: "umount: /data: target is busy"},
		"u-wanted":  {Operation: "unpublish", Code: "Internal", Message: "stuck fast"},
	} {
		l := line(uid, "", true)
		l.Error = &e
		inUse[uid] = l
	}
	wants := &volumesv1alpha1.VolumeAttachmentIntent{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "wants"},
		Spec: volumesv1alpha1.VolumeAttachmentIntentSpec{NodeName: "node-b", Volume: volumesv1alpha1.VolumeSource{
			PersistentVolumeClaim: &volumesv1alpha1.PersistentVolumeClaimSource{ClaimName: "wanted"}}},
	}
	if err := c.Create(t.Context(), wants); err != nil {
		t.Fatal(err)
	}
	wanted := inUse["u-wanted"]
	wanted.Publications, wanted.PublicationCount = []volumesv1alpha1.Publication{{Path: "/published/wants",
		Type:   volumesv1alpha1.PublicationMount,
		Intent: volumesv1alpha1.IntentReference{Namespace: "default", Name: "wants", UID: wants.UID}}}, 1
	inUse["u-wanted"] = wanted
	state.Status.Volumes = append(state.Status.Volumes, slices.Collect(maps.Values(inUse))...)
	state.Status.Volumes = append(state.Status.Volumes,
		line("s-1", "unstage", true), line("s-2", "unpublish", true), line("p-1", "stage", true),
		line("e-1", "unstage", false), ofOther("two-1"), line("two-1", "stage", true), ofOther("m-1"))
	if err := c.Status().Update(t.Context(), state); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, answer string
		args         []string
		exit         int
		want         []string
	}{
		{"an attachment beside --all-stuck", "node-b\n", append([]string{"va-2"}, stuck...), Failed, nil},
		{"a dry run", "node-b\n", append([]string{"--dry-run"}, stuck...), Fine, nil},
		{"both flags", "node-b\n", append([]string{"--other-machine"}, stuck...), Failed, nil},
		{"another answer", "yes\n", stuck, Failed, nil},
		{"one that both machines use", "node-b\n", []string{"node-b", "two-1", "--reason", "off"}, Failed, nil},
		{"the name", "node-b\n", stuck, Fine, []string{"s-1", "s-2"}},
		{"those of the other machine", "node-b\n", other, Fine, []string{"m-1", "s-1", "s-2"}},
	} {
		stderr, exit := answer(t, config, tt.answer, tt.args...)
		if got := declared(); exit != tt.exit || !slices.Equal(got, tt.want) {
			t.Errorf("%s: exit code %d, declared %v, stderr %q; want %d and %v", tt.name, exit, got, stderr, tt.exit, tt.want)
		}
		if tt.want != nil && (!strings.Contains(stderr, "fails: Internal stuck fast") || !strings.Contains(stderr,
			"overrules")) {
			t.Errorf("%s: stderr %q; want the errors, and that the declaration overrules the agent", tt.name, stderr)
		}
	}
}
