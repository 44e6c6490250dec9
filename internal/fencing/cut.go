/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package fencing

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Volume to which access may be cut.
type Volume struct {
	Driver, Handle string
	Attributes     map[string]string
}

// Client is by which addresses a node reaches the storage of one driver, as one object reports it.
type Client struct {
	NodeName, Driver string
	Addresses        []netip.Prefix
}

// ClientsResource of the objects in which drivers report their clients.
func (s *Source) ClientsResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: s.Clients.Group, Version: s.Clients.Version, Resource: s.Clients.Resource}
}

// Client is what one object of the source's clients reports. With an error it names node and driver if these are known:
// then only they are concerned.
func (s *Source) Client(ctx context.Context, object *unstructured.Unstructured) (Client, error) {
	var c Client
	input := map[string]any{"object": object.Object}
	if err := errors.Join(
		s.evaluate(ctx, s.client.nodeName, "clients.nodeName", object, input, taker(&c.NodeName)),
		s.evaluate(ctx, s.client.driver, "clients.driver", object, input, taker(&c.Driver)),
	); err != nil {
		return Client{}, err
	}
	var texts []string
	err := s.evaluate(ctx, s.client.addresses, "clients.addresses", object, input, taker(&texts))
	for _, text := range texts {
		address, failure := Reported(text)
		c.Addresses, err = append(c.Addresses, address), errors.Join(err, failure)
	}
	if err != nil {
		return Client{NodeName: c.NodeName, Driver: c.Driver}, fmt.Errorf("source %s: clients.addresses of %s: %w", s.Name,
			name(object), err)
	}
	return c, nil
}

// CoversVolume reports whether the fence, which is of the driver of the volume, cuts the access to that volume.
func (s *Source) CoversVolume(ctx context.Context, object *unstructured.Unstructured, v Volume) (bool, error) {
	if s.covers == nil {
		return true, nil
	}
	attributes := map[string]any{}
	for key, value := range v.Attributes {
		attributes[key] = value
	}
	var covers bool
	err := s.evaluate(ctx, s.covers, "covers", object, map[string]any{"object": object.Object,
		"volume": map[string]any{"driver": v.Driver, "handle": v.Handle, "attributes": attributes}}, taker(&covers))
	return covers && err == nil, err
}

// Opens reports whether the object may give back the access that another one of its source cuts off: it does not hold,
// and has an address in common with it. What is not known of it counts as the same. A source may carry out each object
// by itself, and storage has one list of addresses.
func (v Verdict) Opens(cut Verdict) bool {
	return !v.Holds && (v.Driver == "" || v.Driver == cut.Driver) && (v.Everywhere || v.Has(cut.Addresses))
}

// Has reports whether any of the addresses is one of the object's.
func (v Verdict) Has(addresses []netip.Prefix) bool {
	return slices.ContainsFunc(v.Addresses, func(own netip.Prefix) bool {
		return slices.ContainsFunc(addresses, own.Overlaps)
	})
}

// NotCut are the addresses that are not cut, in a fixed order.
func NotCut(cut, addresses []netip.Prefix) []netip.Prefix {
	var left []netip.Prefix
	for _, address := range addresses {
		if !cuts(cut, address) {
			left = append(left, address)
		}
	}
	slices.SortFunc(left, netip.Prefix.Compare)
	return left
}

func cuts(cut []netip.Prefix, address netip.Prefix) bool {
	for _, c := range cut {
		if c.Bits() <= address.Bits() && c.Contains(address.Addr()) {
			return true
		}
	}
	return false
}

// Cut is an address, or a range of them, that a fence cuts. It has no host bits: whether storage takes one that has for
// the range or for the address is not known.
func Cut(text string) (netip.Prefix, error) {
	p, err := parse(text)
	if err == nil && p != p.Masked() {
		return netip.Prefix{}, fmt.Errorf("%q has host bits", text)
	}
	return p, err
}

// Reported is an address, or a range of them, of a node. One with host bits is the whole range.
func Reported(text string) (netip.Prefix, error) {
	p, err := parse(text)
	return p.Masked(), err
}

// parse accepts no zone, and an IPv4 address in IPv6 only without a length: what is meant would be a guess.
func parse(text string) (netip.Prefix, error) {
	if address, err := netip.ParseAddr(text); err == nil {
		if address = address.Unmap(); address.Zone() != "" {
			return netip.Prefix{}, fmt.Errorf("%q has a zone", text)
		}
		return netip.PrefixFrom(address, address.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	if err == nil && p.Addr().Is4In6() {
		return netip.Prefix{}, fmt.Errorf("%q is a range of IPv4 addresses in IPv6", text)
	}
	return p, err
}
