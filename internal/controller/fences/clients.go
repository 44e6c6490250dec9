/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package fences

import (
	"context"
	"net/netip"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hawser-io/hawser/internal/fencing"
)

// reported is what one object reports of a node.
type reported struct {
	of fencing.Client
	// unclear: an expression failed. Where that is so of node or driver, every node and driver is concerned.
	unclear bool
}

func reportedIn(ctx context.Context, s *fencing.Source, object *unstructured.Unstructured) (reported, error) {
	of, err := s.Client(ctx, object)
	return reported{of: of, unclear: err != nil}, err
}

// ofAll reports whether it may be about any node.
func (r reported) ofAll() bool { return r.unclear && r.subject() == subject{} }

func (r reported) subject() subject { return subject{node: r.of.NodeName, driver: r.of.Driver} }

// subject is what an object reports about.
type subject struct{ node, driver string }

// clients are what drivers report of their nodes.
type clients struct {
	subjects map[client.ObjectKey]subject
	about    map[subject]map[client.ObjectKey]reported
}

func newClients() *clients {
	return &clients{subjects: map[client.ObjectKey]subject{}, about: map[subject]map[client.ObjectKey]reported{}}
}

// set what an object reports; nil where it is gone. It returns what the object reported before. One that is about no
// node is not kept.
func (c *clients) set(key client.ObjectKey, now *reported) reported {
	was := c.subjects[key]
	before := c.about[was][key]
	delete(c.subjects, key)
	if delete(c.about[was], key); len(c.about[was]) == 0 {
		delete(c.about, was)
	}
	if now == nil || now.of.NodeName == "" && !now.ofAll() {
		return before
	}
	is := now.subject()
	if c.about[is] == nil {
		c.about[is] = map[client.ObjectKey]reported{}
	}
	c.subjects[key], c.about[is][key] = is, *now
	return before
}

// addresses are all that any object reports of the node and the driver. Without clarity there may be more.
func (c *clients) addresses(node, driver string) (addresses []netip.Prefix, clear bool) {
	clear = !c.anyOfAll()
	for _, r := range c.about[subject{node: node, driver: driver}] {
		clear = clear && !r.unclear
		addresses = append(addresses, r.of.Addresses...)
	}
	return addresses, clear
}

// anyOfAll reports whether any object may be about any node.
func (c *clients) anyOfAll() bool { return len(c.about[subject{}]) > 0 }

// with are the nodes that have an address in common with any of the verdicts, by the driver of that. One of which the
// addresses are not clear may.
func (c *clients) with(verdicts []fencing.Verdict) sets.Set[string] {
	nodes := sets.New[string]()
	for of, reports := range c.about {
		for _, v := range verdicts {
			for _, r := range reports {
				if v.Driver == of.driver && (r.unclear || v.Has(r.of.Addresses)) {
					nodes.Insert(of.node)
				}
			}
		}
	}
	return nodes
}
