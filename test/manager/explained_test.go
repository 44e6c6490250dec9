/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package manager

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/cli"
	"github.com/hawser-io/hawser/internal/explain"
	"github.com/hawser-io/hawser/internal/explain/catalog"
	"github.com/hawser-io/hawser/test/apiserver"
)

// precise are the causes that kubectl hawser why may name in place of a reason, because objects show more.
var precise = map[string][]string{
	volumesv1alpha1.ReasonVolumeInUse:          {catalog.HolderOnDeadNode, catalog.OtherAttachment},
	volumesv1alpha1.ReasonAttaching:            {catalog.OtherAttachment},
	volumesv1alpha1.ReasonDetaching:            {catalog.OtherAttachment},
	volumesv1alpha1.ReasonWaitingForAgent:      {catalog.LeaseMissing},
	volumesv1alpha1.ReasonClaimNotBound:        {catalog.ClassUnset},
	volumesv1alpha1.ReasonWaitForFirstConsumer: {volumesv1alpha1.ReasonClaimNotBound},
	volumesv1alpha1.ReasonAgentUnreachable:     {catalog.LeaseExpired},
	volumesv1alpha1.ReasonForcedAway:           {catalog.LeaseExpired},
}

// explained checks that kubectl hawser why names the reason of a condition, or a more precise one, as the cause of what
// the intent waits for, unless the condition has changed meanwhile.
func (w *world) explained(t *testing.T, intent *volumesv1alpha1.VolumeAttachmentIntent, conditionType, reason string) {
	t.Helper()
	var out bytes.Buffer
	cli.Run(t.Context(), []string{"why", "intent", intent.Name, "--namespace=" + intent.Namespace, "--output=json",
		"--kubeconfig=" + apiserver.Kubeconfig(t, w.config), "--hawser-namespace=" + volumesv1alpha1.InstallNamespace},
		genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &out})
	now := &volumesv1alpha1.VolumeAttachmentIntent{}
	if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(intent), now); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	if c := meta.FindStatusCondition(now.Status.Conditions, conditionType); c == nil || c.Reason != reason {
		return
	}
	var answer struct{ Reports []explain.Report }
	if err := json.Unmarshal(out.Bytes(), &answer); err != nil {
		t.Fatalf("kubectl hawser why intent %s: %v in %s", intent.Name, err, &out)
	}
	found := answer.Reports[0].Findings
	if len(found) == 0 || !slices.Contains(append(precise[reason], reason), found[0].Reason) {
		t.Errorf("kubectl hawser why intent %s does not name %s as the cause; it finds %+v", intent.Name, reason, found)
	}
}
