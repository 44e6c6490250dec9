/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package fencing

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

func cutSpec(change func(*volumesv1alpha1.FenceSource)) volumesv1alpha1.FenceSource {
	s := volumesv1alpha1.FenceSource{Name: "net", Group: "example.com", Version: "v1", Resource: "fences",
		Driver: "object.spec.driver", Addresses: "object.spec.cidrs", Holds: "object.spec.fenced",
		Proves: volumesv1alpha1.FenceAccessCut,
		Clients: &volumesv1alpha1.FenceClients{Group: "example.com", Version: "v1", Resource: "clients",
			NodeName: "object.spec.node", Driver: "object.spec.driver", Addresses: "object.spec.cidrs"}}
	change(&s)
	return s
}

func compiled(t *testing.T, change func(*volumesv1alpha1.FenceSource)) *Source {
	t.Helper()
	s, err := Compile(cutSpec(change))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func cutObject(spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "f"}, "spec": spec}}
}

func plain(*volumesv1alpha1.FenceSource) {}

func prefixes(texts ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

func TestWhatAFenceCuts(t *testing.T) {
	for _, c := range []struct {
		name   string
		source func(*volumesv1alpha1.FenceSource)
		cidrs  any
		want   []netip.Prefix
		fails  string
	}{
		{"addresses and ranges", plain, []any{"192.0.2.1", "198.51.100.0/24", "2001:db8::/64"},
			prefixes("192.0.2.1/32", "198.51.100.0/24", "2001:db8::/64"), ""},
		{"an IPv4 address in IPv6", plain, []any{"::ffff:192.0.2.1"}, prefixes("192.0.2.1/32"), ""},
		{"none", plain, []any{}, nil, ""},
		{"a range with host bits", plain, []any{"192.0.2.1/24"}, nil, "host bits"},
		{"an address with a zone", plain, []any{"fe80::1%eth0"}, nil, "zone"},
		{"a range of IPv4 addresses in IPv6", plain, []any{"::ffff:192.0.2.0/120"}, nil, "IPv4 addresses in IPv6"},
		{"one that is no address, beside one that is", plain, []any{"192.0.2.1", "storage"}, nil, "storage"},
		{"a port", plain, []any{"192.0.2.1:6789"}, nil, "192.0.2.1:6789"},
		{"numbers", plain, []any{int64(1)}, nil, "it returned list"},
		{"no list", plain, "192.0.2.1", nil, "it returned string"},
		{"no addresses at all", plain, nil, nil, "it returned null"},
		{"a list that the expression makes", func(s *volumesv1alpha1.FenceSource) {
			s.Addresses = "object.spec.cidrs.map(c, [c]).flatten()"
		}, []any{"192.0.2.1"}, prefixes("192.0.2.1/32"), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := compiled(t, c.source).Evaluate(t.Context(),
				cutObject(map[string]any{"driver": "d", "fenced": true, "cidrs": c.cidrs}))
			want := Verdict{Holds: true, Driver: "d", Addresses: c.want}
			if c.fails != "" {
				want = Verdict{Driver: "d", Everywhere: true}
			}
			if !reflect.DeepEqual(got, want) || (err == nil) != (c.fails == "") ||
				err != nil && !strings.Contains(err.Error(), c.fails) {
				t.Errorf("verdict %+v, error %v; want %+v, and an error with %q", got, err, want, c.fails)
			}
		})
	}
}

func TestWhatADriverReportsOfANode(t *testing.T) {
	for _, c := range []struct {
		name string
		spec map[string]any
		want Client
		// fails: the error contains this.
		fails string
	}{
		{"addresses", map[string]any{"node": "n", "driver": "d", "cidrs": []any{"192.0.2.1", "192.0.2.9/24"}},
			Client{NodeName: "n", Driver: "d", Addresses: prefixes("192.0.2.1/32", "192.0.2.0/24")}, ""},
		{"none yet", map[string]any{"node": "n", "driver": "d", "cidrs": []any{}}, Client{NodeName: "n", Driver: "d"}, ""},
		{"one that is no address: the node is known", map[string]any{"node": "n", "driver": "d",
			"cidrs": []any{"192.0.2.1", "?"}}, Client{NodeName: "n", Driver: "d"}, "clients.addresses of f"},
		{"no node: every node is concerned", map[string]any{"driver": "d", "cidrs": []any{"192.0.2.1"}}, Client{},
			"clients.nodeName of f"},
		{"no driver", map[string]any{"node": "n", "cidrs": []any{"192.0.2.1"}}, Client{}, "clients.driver of f"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := compiled(t, plain).Client(t.Context(), cutObject(c.spec))
			if !reflect.DeepEqual(got, c.want) || (err == nil) != (c.fails == "") ||
				err != nil && !strings.Contains(err.Error(), c.fails) {
				t.Errorf("client %+v, error %v; want %+v, and an error with %q", got, err, c.want, c.fails)
			}
		})
	}
}

// TestWhatIsKnownOfAFenceThatDoesNotHold: it may open what another one cuts off.
func TestWhatIsKnownOfAFenceThatDoesNotHold(t *testing.T) {
	for _, c := range []struct {
		name string
		spec map[string]any
		want Verdict
		// fails: the error contains this.
		fails string
	}{
		{"all", map[string]any{"driver": "d", "fenced": false, "cidrs": []any{"192.0.2.1"}},
			Verdict{Driver: "d", Addresses: prefixes("192.0.2.1/32")}, ""},
		{"whether it holds is not known", map[string]any{"driver": "d", "cidrs": []any{"192.0.2.1"}},
			Verdict{Driver: "d", Addresses: prefixes("192.0.2.1/32")}, "holds of f"},
		{"no driver", map[string]any{"fenced": true, "cidrs": []any{"192.0.2.1"}},
			Verdict{Addresses: prefixes("192.0.2.1/32")}, "driver of f"},
		{"no addresses", map[string]any{"driver": "d", "fenced": false}, Verdict{Driver: "d", Everywhere: true},
			"addresses of f"},
		{"an address that is none", map[string]any{"driver": "d", "fenced": false, "cidrs": []any{"192.0.2.1", "?"}},
			Verdict{Driver: "d", Everywhere: true}, "addresses of f"},
		{"nothing", map[string]any{}, Verdict{Everywhere: true}, "holds of f"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := compiled(t, plain).Evaluate(t.Context(), cutObject(c.spec))
			if !reflect.DeepEqual(got, c.want) || (err == nil) != (c.fails == "") ||
				err != nil && !strings.Contains(err.Error(), c.fails) {
				t.Errorf("verdict %+v, error %v; want %+v, and an error with %q", got, err, c.want, c.fails)
			}
		})
	}
}

func TestAnotherObjectOpensTheAddressesThatItHasInCommon(t *testing.T) {
	cut := Verdict{Holds: true, Driver: "d", Addresses: prefixes("192.0.2.0/24", "2001:db8::1/128")}
	for _, c := range []struct {
		name  string
		other Verdict
		want  bool
	}{
		{"one of them", Verdict{Driver: "d", Addresses: prefixes("198.51.100.1/32", "192.0.2.1/32")}, true},
		{"a range that has one", Verdict{Driver: "d", Addresses: prefixes("2001:db8::/64")}, true},
		{"others", Verdict{Driver: "d", Addresses: prefixes("198.51.100.0/24", "2001:db8::2/128")}, false},
		{"none", Verdict{Driver: "d"}, false},
		{"what they are is not known", Verdict{Driver: "d", Everywhere: true}, true},
		{"of another driver", Verdict{Driver: "e", Addresses: prefixes("192.0.2.1/32")}, false},
		{"all of another driver", Verdict{Driver: "e", Everywhere: true}, false},
		{"of which driver is not known", Verdict{Addresses: prefixes("192.0.2.1/32")}, true},
		{"it holds as well", Verdict{Holds: true, Driver: "d", Addresses: prefixes("192.0.2.1/32")}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.other.Opens(cut); got != c.want {
				t.Errorf("%+v opens %+v: %t, want %t", c.other, cut, got, c.want)
			}
		})
	}
}

func TestAFenceCutsANodeWhoseAddressesItHasAll(t *testing.T) {
	for _, c := range []struct {
		name               string
		cut, address, left []netip.Prefix
	}{
		{"the same", prefixes("192.0.2.1/32"), prefixes("192.0.2.1/32"), nil},
		{"a range that has it", prefixes("192.0.2.0/24"), prefixes("192.0.2.1/32"), nil},
		{"all of them", prefixes("192.0.2.1/32", "2001:db8::/64"), prefixes("2001:db8::1/128", "192.0.2.1/32"), nil},
		{"one of three", prefixes("192.0.2.1/32"), prefixes("192.0.2.3/32", "192.0.2.1/32", "192.0.2.2/32"),
			prefixes("192.0.2.2/32", "192.0.2.3/32")},
		{"a part of the range", prefixes("192.0.2.0/25"), prefixes("192.0.2.0/24"), prefixes("192.0.2.0/24")},
		{"the range in two parts, of which none has it all", prefixes("192.0.2.0/25", "192.0.2.128/25"),
			prefixes("192.0.2.0/24"), prefixes("192.0.2.0/24")},
		{"another family", prefixes("::/0"), prefixes("192.0.2.1/32"), prefixes("192.0.2.1/32")},
		{"nothing is cut", nil, prefixes("192.0.2.1/32"), prefixes("192.0.2.1/32")},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := NotCut(c.cut, c.address); !slices.Equal(got, c.left) {
				t.Errorf("of %v, %v does not cut %v; want %v", c.address, c.cut, got, c.left)
			}
		})
	}
}

func TestWhichVolumesAFenceCovers(t *testing.T) {
	of := func(covers string) func(*volumesv1alpha1.FenceSource) {
		return func(s *volumesv1alpha1.FenceSource) { s.Covers = covers }
	}
	for _, c := range []struct {
		name   string
		source func(*volumesv1alpha1.FenceSource)
		want   bool
		fails  string
	}{
		{"all", plain, true, ""},
		{"one of the same storage", of("volume.attributes.cluster == object.spec.cluster"), true, ""},
		{"one of other storage", of("volume.attributes.cluster != object.spec.cluster"), false, ""},
		{"by its handle and driver", of("volume.handle == 'h' && volume.driver == 'd'"), true, ""},
		{"an attribute that is missing", of("volume.attributes.pool == 'p'"), false, "no such key"},
		{"no truth", of("object.spec.cluster"), false, "it returned string"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := compiled(t, c.source).CoversVolume(t.Context(), cutObject(map[string]any{"cluster": "c"}),
				Volume{Driver: "d", Handle: "h", Attributes: map[string]string{"cluster": "c"}})
			if got != c.want || (err == nil) != (c.fails == "") || err != nil && !strings.Contains(err.Error(), c.fails) {
				t.Errorf("covered: %t, error %v; want %t, and an error with %q", got, err, c.want, c.fails)
			}
		})
	}
}

func TestASourceThatCutsAccessNeedsEachOfItsParts(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*volumesv1alpha1.FenceSource)
		want   string
	}{
		"no driver":    {func(s *volumesv1alpha1.FenceSource) { s.Driver = "" }, "needs holds, driver"},
		"no addresses": {func(s *volumesv1alpha1.FenceSource) { s.Addresses = "" }, "needs holds, driver"},
		"no clients":   {func(s *volumesv1alpha1.FenceSource) { s.Clients = nil }, "needs holds, driver"},
		"clients without addresses": {func(s *volumesv1alpha1.FenceSource) { s.Clients.Addresses = "" },
			"needs holds, driver"},
		"nothing that holds": {func(s *volumesv1alpha1.FenceSource) { s.Holds = "" }, "needs holds"},
		"a node":             {func(s *volumesv1alpha1.FenceSource) { s.NodeName = "'n'" }, "neither nodeName"},
		"one address":        {func(s *volumesv1alpha1.FenceSource) { s.Addresses = "'192.0.2.1'" }, "must return list"},
		"numbers":            {func(s *volumesv1alpha1.FenceSource) { s.Clients.Addresses = "[1]" }, "must return list"},
		"a broken expression of the clients": {func(s *volumesv1alpha1.FenceSource) { s.Clients.Driver = "object." },
			"source net: clients.driver"},
		"a volume where there is none": {func(s *volumesv1alpha1.FenceSource) { s.Holds = "volume.handle == 'h'" },
			"undeclared reference"},
		"a broken covers": {func(s *volumesv1alpha1.FenceSource) { s.Covers = "1" }, "source net: covers"},
		"another proof": {func(s *volumesv1alpha1.FenceSource) {
			s.Proves, s.NodeName = volumesv1alpha1.FencePowerOff, "'n'"
		}, "need proves: AccessCut"},
		"another proof with clients alone": {func(s *volumesv1alpha1.FenceSource) {
			s.Proves, s.NodeName, s.Driver, s.Addresses = volumesv1alpha1.FencePowerOff, "'n'", "", ""
		}, "need proves: AccessCut"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Compile(cutSpec(c.change)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
	want := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "clients"}
	if got := compiled(t, plain).ClientsResource(); got != want {
		t.Errorf("resource of the clients %v, want %v", got, want)
	}
}
