/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package inflight

import (
	"strings"
	"testing"
)

func TestWhatIsAddedForLaterComesAfterEverythingElse(t *testing.T) {
	for _, c := range []struct {
		name string
		// added in this order; a star marks what is added for later.
		added, want string
	}{
		{"one by one", "a* b c* d", "b d a c"},
		{"what is also added by itself does not wait", "a* b* c b", "c b a"},
		{"what is in the first lane stays there", "a b a*", "a b"},
		{"for later twice", "a* b* a* c", "c a b"},
	} {
		q := started(t, New(1))
		for name := range strings.FieldsSeq(c.added) {
			if later, ok := strings.CutSuffix(name, "*"); ok {
				q.Later().Add(object(later))
			} else {
				q.Add(object(name))
			}
		}
		if got := taken(q); got != c.want {
			t.Errorf("%s: %q added come out as %q, want %q", c.name, c.added, got, c.want)
		}
	}
}

func TestWhatOnceWaitedForLaterWaitsAgainWhenItIsAddedForLater(t *testing.T) {
	q := started(t, New(1))
	q.Later().Add(object("a"))
	q.Later().Add(object("b"))
	q.Add(object("b"))
	if got := taken(q); got != "b a" {
		t.Fatalf("b before a because it was added by itself: %q come out, want \"b a\"", got)
	}
	q.Later().Add(object("b"))
	q.Later().Add(object("c"))
	q.Add(object("a"))
	if got := taken(q); got != "a b c" {
		t.Errorf("after a second time: %q come out, want \"a b c\"", got)
	}
}

func TestWhatChangesWhileItIsAtWorkComesAgainAfterwards(t *testing.T) {
	q := started(t, New(1))
	q.Add(object("a"))
	req, _ := q.TypedRateLimitingInterface.Get()
	q.Later().Add(object("a"))
	q.Add(object("b"))
	q.Done(req)
	if got := taken(q); got != "b a" {
		t.Errorf("a was added for later while it was at work: %q come out, want \"b a\"", got)
	}

	q.Add(object("a"))
	req, _ = q.TypedRateLimitingInterface.Get()
	q.Later().Add(object("a"))
	q.Later().Add(object("b"))
	q.Add(object("a"))
	q.Done(req)
	if got := taken(q); got != "a b" {
		t.Errorf("a was also added by itself while it was at work: %q come out, want \"a b\"", got)
	}

	q.Add(object("a"))
	req, _ = q.TypedRateLimitingInterface.Get()
	q.Later().Add(object("b"))
	q.Add(object("a"))
	q.Later().Add(object("a"))
	q.Done(req)
	if got := taken(q); got != "a b" {
		t.Errorf("a was added by itself while it was at work, and then for later: %q come out, want \"a b\"", got)
	}

	q.Later().Add(object("a"))
	q.Add(object("b"))
	if got := taken(q); got != "b a" {
		t.Errorf("a was added for later once its work was done: %q come out, want \"b a\"", got)
	}
}

// taken empties the queue.
func taken(q *Queue) string {
	var names []string
	for q.Len() > 0 {
		req, _ := q.TypedRateLimitingInterface.Get()
		q.Done(req)
		names = append(names, req.Name)
	}
	return strings.Join(names, " ")
}
