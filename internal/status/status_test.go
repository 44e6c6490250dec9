/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package status

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

func TestATextIsCutBetweenTwoCharacters(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "short": "short", "12345678": "12345678", "123456789": "12345...", "1234öööö": "1234...",
	} {
		if got := Shorten(text, 8); got != want || !utf8.ValidString(got) {
			t.Errorf("%q is cut to %q, want %q", text, got, want)
		}
	}
}

func TestWhatADriverReturnedIsCutToWhatTheAPITakes(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	intent := &volumesv1alpha1.VolumeAttachmentIntent{}
	Set(intent, volumesv1alpha1.ConditionStaged, metav1.ConditionFalse, volumesv1alpha1.ReasonStageFailed, long)
	e := NextError(nil, "stage", long, long, time.Now())
	for what, c := range map[string]struct{ got, most int }{
		"a condition's message": {len(intent.Status.Conditions[0].Message), volumesv1alpha1.MaxConditionMessageLength},
		"an error's message":    {len(e.Message), volumesv1alpha1.MaxMessageLength},
		"an error's code":       {len(e.Code), volumesv1alpha1.MaxCodeLength},
	} {
		if c.got != c.most {
			t.Errorf("%s of a driver that returned 1 MiB has %d bytes, want %d", what, c.got, c.most)
		}
	}
	if Set(intent, volumesv1alpha1.ConditionStaged, metav1.ConditionFalse, volumesv1alpha1.ReasonStageFailed, long) {
		t.Error("the same long message is a change, want that it is none")
	}
}
