/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package inline

import (
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/record"
)

// act is what is to be done with a place of a directory.
type act string

const (
	// leave it as it is.
	leave act = "leave"
	// show binds the publication of the intent.
	show act = "show"
	// takeAway unmounts what is there and removes the place.
	takeAway act = "take away"
)

// placeFacts are what is known of one place of a directory.
type placeFacts struct {
	// selector of the directory; nil where it is not known.
	selector labels.Selector
	// intent with the name of the place; nil if there is none.
	intent *volumesv1alpha1.VolumeAttachmentIntent
	// published for the intent; nil while nothing is that pods may use.
	published *Publication
	// bind at the place; nil where none is recorded.
	bind *record.PodBind
	// mounted: the mount table has what the bind made.
	mounted bool
	// forcedAway: the attachment of the bound volume was taken away.
	forcedAway bool
}

// decide what to do with the place. Only what is known takes a volume away: an intent that is not there, or whose
// publication is not known at present, leaves the place as it is.
func decide(f placeFacts) act {
	selected := f.intent != nil && f.selector != nil && selects(f.selector, f.intent)
	if f.bind == nil {
		if selected && f.published != nil {
			return show
		}
		return leave
	}
	current := f.published != nil && f.published.AttachmentUID == f.bind.AttachmentUID
	switch {
	case f.forcedAway:
		return takeAway
	case !f.mounted && selected && current:
		return show // again
	case !f.mounted:
		return takeAway
	case f.intent == nil || f.selector == nil:
		return leave
	case !selected:
		return takeAway
	case f.published != nil && !current:
		return takeAway
	}
	return leave
}

// selects reports whether the intent is one that a directory with the selector shows.
func selects(selector labels.Selector, i *volumesv1alpha1.VolumeAttachmentIntent) bool {
	r := request{intent: types.NamespacedName{Namespace: i.Namespace, Name: i.Name}}
	return selector.Matches(labels.Set(i.Labels)) && refuse(r, i) == nil
}
