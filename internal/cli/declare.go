/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/explain"
	"github.com/hawser-io/hawser/internal/explain/facts"
	"github.com/hawser-io/hawser/internal/handshake"
	"github.com/hawser-io/hawser/internal/machine"
)

// declare declares attachments released: one, all whose release fails, or all that another machine uses.
type declare struct {
	*options
	reason                              string
	yes, allStuck, otherMachine, dryRun bool
}

func newDeclare(o *options) *cobra.Command {
	d := &declare{options: o}
	cmd := &cobra.Command{
		Use:   "declare-released NODE {ATTACHMENT-UID | --all-stuck | --other-machine} --reason TEXT",
		Short: "Declare that a node has released an attachment, after you made sure that it has",
		Long: "Declare that a node has released an attachment. If you are wrong, the data of the volume is lost: read\n" +
			"docs/operate.md, \"Declaring an attachment released\". The command shows what it found and asks for the name\n" +
			"of the node, unless --yes is set.\n\n" +
			"With --all-stuck it declares every attachment whose release fails on the machine that reports although nothing\n" +
			"is known to use it there, and no intent wants it there. Use it only if nothing uses them any more. With\n" +
			"--other-machine it declares every attachment that only another machine of the node's name uses. Use it only\n" +
			"if that machine is off for good.",
		Args: d.args,
		RunE: o.plain(d.run),
	}
	cmd.Flags().StringVar(&d.reason, "reason", "", "why it is released; it is recorded as evidence (required)")
	cmd.Flags().BoolVar(&d.yes, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&d.allStuck, "all-stuck", false,
		"every attachment whose release fails although nothing is known to use it")
	cmd.Flags().BoolVar(&d.otherMachine, "other-machine", false,
		"every attachment that only another machine of the node's name uses")
	cmd.MarkFlagsMutuallyExclusive("all-stuck", "other-machine")
	cmd.Flags().BoolVar(&d.dryRun, "dry-run", false, "only show what would be declared")
	_ = cmd.MarkFlagRequired("reason") // it only fails for a flag that does not exist
	return cmd
}

func (d *declare) args(cmd *cobra.Command, args []string) error {
	if d.allStuck || d.otherMachine {
		return cobra.ExactArgs(1)(cmd, args)
	}
	return cobra.ExactArgs(2)(cmd, args)
}

func (d *declare) run(ctx context.Context, g *facts.Gatherer, args []string) error {
	if strings.TrimSpace(d.reason) == "" {
		return errors.New("--reason is empty; it is recorded as evidence")
	}
	f, err := g.Gather(ctx, facts.Ref{Kind: facts.KindNode, Name: args[0]})
	if err != nil {
		return err
	}
	d.progressDone()
	n, _ := f.NodeOf(args[0])
	if !n.State.Found {
		return n.Missing()
	}
	uids, none := args[1:], ""
	switch {
	case d.allStuck:
		if f.NodeIntents.Err != nil {
			return fmt.Errorf("it is not known which volumes intents want on node %s: %w", args[0], f.NodeIntents.Err)
		}
		uids, _ = explain.Undeclared(n.State.Value, explain.Stuck(f))
		none = "no failing release of an unused volume"
	case d.otherMachine:
		uids, _ = explain.Undeclared(n.State.Value, explain.OfOtherMachine)
		none = "no use by another machine alone"
	}
	if len(uids) == 0 {
		return fmt.Errorf("the agent of node %s reports %s that is not declared released yet; kubectl hawser why node %s "+
			"explains what it waits for", args[0], none, args[0])
	}
	found, err := findAttachments(f, n.State.Value, uids)
	if err != nil {
		return err
	}
	cause := explain.CannotRelease(f, args[0])
	silent := cause != ""
	if silent {
		found = append(found, cause)
	} else {
		found = append(found, "WARNING: the node is Ready and its agent reports, so it releases the volume itself. "+
			"A declaration overrules that report")
	}
	_, _ = fmt.Fprintf(d.ErrOut, "Found on node %s:\n  %s\n", args[0], visible(strings.Join(found, "\n  ")))
	if d.dryRun {
		_, err := fmt.Fprintf(d.Out, "not declared (--dry-run): attachments %s of node %s\n", strings.Join(uids, ", "),
			args[0])
		return err
	}
	if err := d.confirm(args[0]); err != nil {
		return err
	}
	return d.write(ctx, g, n.State.Value, uids, func(now *volumesv1alpha1.NodeVolumeState) error {
		again, err := findAttachments(f, now, uids)
		if err == nil && !sameUse(n.State.Value, now, uids, silent) {
			err = fmt.Errorf("it is not as it was shown any more, so look at it again; now it is:\n  %s",
				strings.Join(again, "\n  "))
		}
		return err
	})
}

// sameUse reports whether two versions of a node state show the same use of attachments by the same boot of the same
// machine: after a reboot the same lines may be a new use. If the node was shown as silent, it may not have reported.
func sameUse(shown, now *volumesv1alpha1.NodeVolumeState, uids []string, silent bool) bool {
	before, all := usesOf(shown, uids)
	after, _ := usesOf(now, uids)
	return all && shown.UID == now.UID && shown.Status.BootID == now.Status.BootID &&
		shown.Status.Machine == now.Status.Machine && shown.Status.Protocol.Session == now.Status.Protocol.Session &&
		equality.Semantic.DeepEqual(before, after) &&
		(!silent || equality.Semantic.DeepEqual(shown.Status, now.Status))
}

// use of some attachments of a node.
type use struct {
	Entries []volumesv1alpha1.NodeAttachment
	Lines   []volumesv1alpha1.NodeVolume
	// Busy are for the lines whether the message of the error names a use.
	Busy []bool
}

// usesOf has no part that changes by itself: how full a volume is, and each try of a release that fails, but for
// whether its message names a use. It is not all if a line has more publications than are listed.
func usesOf(state *volumesv1alpha1.NodeVolumeState, uids []string) (u use, all bool) {
	all = true
	for i := range state.Spec.Attachments {
		if e := &state.Spec.Attachments[i]; slices.Contains(uids, string(e.AttachmentUID)) {
			u.Entries = append(u.Entries, *e)
		}
	}
	for i := range state.Status.Volumes {
		l := state.Status.Volumes[i]
		if !slices.Contains(uids, string(l.AttachmentUID)) {
			continue
		}
		all = all && l.Unlisted() == 0
		l.Capacity, l.Used, l.Available, l.Inodes, l.InodesUsed, l.Health = nil, nil, nil, nil, nil, nil
		u.Busy = append(u.Busy, l.Error != nil && explain.NamesUse(l.Error))
		if l.Error != nil {
			l.Error = &volumesv1alpha1.OperationError{Operation: l.Error.Operation, Code: l.Error.Code}
		}
		u.Lines = append(u.Lines, l)
	}
	return u, all
}

// findAttachments describes what names the attachments, or is the error for which they cannot be declared.
func findAttachments(f *facts.Facts, state *volumesv1alpha1.NodeVolumeState, uids []string) ([]string, error) {
	var found []string
	for _, uid := range uids {
		if handshake.UsedByTwo(state, types.UID(uid)) {
			return nil, fmt.Errorf("the machine that reports for node %s uses attachment %s too, so a declaration would have "+
				"it detached there as well; first end that use, for instance by draining the pods of the node", state.Name, uid)
		}
		named := findAttachment(f, state, uid)
		if len(named) == 0 {
			return nil, fmt.Errorf("nothing on node %s names the attachment %s; kubectl get nvs %s -o yaml lists what does",
				state.Name, uid, state.Name)
		}
		found = append(found, named...)
	}
	return found, nil
}

// findAttachment describes the entry and the line that name an attachment.
func findAttachment(f *facts.Facts, state *volumesv1alpha1.NodeVolumeState, uid string) []string {
	var found []string
	for i := range state.Spec.Attachments {
		e := &state.Spec.Attachments[i]
		if string(e.AttachmentUID) != uid {
			continue
		}
		text := fmt.Sprintf("entry %s of %s%s", e.State, e.VolumeName, ofClaim(f.ClaimOf(state, e.VolumeName)))
		if e.Evidence != nil {
			text += fmt.Sprintf(", evidence %s since %s", e.Evidence.Type, e.Evidence.Time.UTC())
		}
		found = append(found, cell(text))
	}
	for i := range state.Status.Volumes {
		l := &state.Status.Volumes[i]
		if string(l.AttachmentUID) != uid {
			continue
		}
		text := fmt.Sprintf("line of %s%s: in use %t, staged at %q", l.VolumeName, ofClaim(f.ClaimOf(state, l.VolumeName)),
			l.InUse, l.StagedPath)
		if l.Machine != nil {
			text += " on another machine (" + machine.Describe(*l.Machine) + ")"
		}
		if l.Error != nil {
			text += fmt.Sprintf(", %s fails: %s %s", l.Error.Operation, l.Error.Code, l.Error.Message)
		}
		for _, p := range l.Publications {
			text += fmt.Sprintf(", published at %s for intent %s/%s", p.Path, p.Intent.Namespace, p.Intent.Name)
		}
		if more := l.Unlisted(); more > 0 {
			text += fmt.Sprintf(", and published %d more times", more)
		}
		found = append(found, cell(text))
	}
	return found
}

// confirm has the user type the name of the node.
func (d *declare) confirm(node string) error {
	if d.yes {
		return nil
	}
	_, _ = fmt.Fprintf(d.ErrOut,
		"If the node still uses the volume, its data is lost. To declare it released, type %s: ", node)
	answer, err := bufio.NewReader(d.In).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("not declared: reading the answer: %w", err)
	}
	if strings.TrimSpace(answer) != node {
		return errors.New("not declared: the answer is not the name of the node")
	}
	return nil
}

// write sets the annotations at the version that was shown, so that nothing is declared about another state. That of a
// node in use changes all the time: a later version is taken as well if same has no error about it.
func (d *declare) write(ctx context.Context, g *facts.Gatherer, state *volumesv1alpha1.NodeVolumeState, uids []string,
	same func(now *volumesv1alpha1.NodeVolumeState) error) error {
	writer, ok := g.Reader.(client.Writer)
	if !ok {
		return errors.New("this connection only reads")
	}
	err := retry.OnError(retry.DefaultBackoff, apierrors.IsConflict, func() error {
		declared := state.DeepCopy()
		for _, uid := range uids {
			metav1.SetMetaDataAnnotation(&declared.ObjectMeta, volumesv1alpha1.DeclaredReleasedPrefix+uid, d.reason)
		}
		conflict := writer.Patch(ctx, declared, client.MergeFromWithOptions(state, client.MergeFromWithOptimisticLock{}))
		if !apierrors.IsConflict(conflict) {
			return conflict
		}
		now := &volumesv1alpha1.NodeVolumeState{}
		if err := g.Reader.Get(ctx, client.ObjectKeyFromObject(state), now); err != nil {
			return err
		}
		state = now
		return cmp.Or(same(now), conflict)
	})
	if err != nil {
		return fmt.Errorf("declaring attachments %s of node %s released: %w", strings.Join(uids, ", "), state.Name, err)
	}
	for _, uid := range uids {
		if _, err := fmt.Fprintf(d.Out, "declared: attachment %s of node %s is released\n", uid, state.Name); err != nil {
			return err
		}
	}
	return nil
}
