/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package placement

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// firsts are the pods that this process has placed first for a claim, until the cache shows them without their gate.
// Otherwise two pods that come at once would be placed apart. The zero value is ready to use.
type firsts struct {
	mu sync.Mutex
	// pods by claim.
	pods map[string]first
}

type first struct {
	uid  types.UID
	name string
	// behind are the pods that wait for this one by their condition.
	behind map[client.ObjectKey]bool
}

// take makes the pod the first of its claims, or lets it wait for the one that is.
func (s *firsts) take(f facts, d decision) decision {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, claim := range d.first {
		if p, taken := s.pods[claim]; taken && p.uid != f.pod.UID {
			p.behind[client.ObjectKeyFromObject(f.pod)] = true
			return decision{behind: true, reason: volumesv1alpha1.ReasonWaitForFirstConsumer,
				message: "claim " + claim + " is used by pod " + p.name + ", which comes first: its node decides where the " +
					"volume is"}
		}
	}
	for _, claim := range d.first {
		if _, again := s.pods[claim]; again {
			continue
		}
		if s.pods == nil {
			s.pods = map[string]first{}
		}
		s.pods[claim] = first{uid: f.pod.UID, name: f.pod.Namespace + "/" + f.pod.Name,
			behind: map[client.ObjectKey]bool{}}
	}
	return d
}

// release ends what take did for the pod: it was not placed, it is gone, or the cache shows that it has no gate. It
// returns the pods that wait for it.
func (s *firsts) release(pod types.UID) []client.ObjectKey {
	s.mu.Lock()
	defer s.mu.Unlock()
	var behind []client.ObjectKey
	for claim, p := range s.pods {
		if p.uid == pod {
			behind = slices.AppendSeq(behind, maps.Keys(p.behind))
			delete(s.pods, claim)
		}
	}
	return behind
}
