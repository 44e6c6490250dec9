/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"
)

// logStep tells what is about to be done: what changes an attachment always, the rest to who wants to follow closely. Names
// only: neither secrets nor what a driver keeps in its attributes.
func logStep(ctx context.Context, f *Facts, s Step) {
	level := 1
	switch s.Act {
	case Attach, MarkLost, MarkDetaching, Delete:
		level = 0
	}
	log := ctrl.LoggerFrom(ctx).V(level)
	if !log.Enabled() {
		return
	}
	values := []any{"act", s.Act, "volume", f.Volume, "node", s.Node.Name}
	intents := s.Intents
	if len(intents) == 0 {
		intents = append(append(intents, s.Node.Wanted...), s.Node.Leaving...)
	}
	if names := namesOf(intents); len(names) > 0 {
		values = append(values, "intents", names)
	}
	if s.Attachment != nil {
		values = append(values, "attachment", s.Attachment.Name)
	}
	if s.Evidence && s.Node.Evidence != nil {
		values = append(values, "evidence", s.Node.Evidence.Type)
	}
	log.Info("acting", values...)
}

func namesOf(intents []*Intent) []string {
	names := make([]string, len(intents))
	for i, intent := range intents {
		names[i] = intent.name()
	}
	return names
}
