/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package store

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	_ "github.com/hawser-io/hawser/test/environment" // cleans that of the tests
)

func TestAPublicationIsDecidedByAccessModeAndLimit(t *testing.T) {
	single, reader := Publication{AccessMode: "SINGLE_NODE_WRITER"}, Publication{AccessMode: "MULTI_NODE_READER_ONLY"}
	shared := Publication{AccessMode: "MULTI_NODE_MULTI_WRITER", Block: true}
	tests := map[string]struct {
		have     map[string]Publication
		want     Publication
		attached int64
		code     codes.Code
	}{
		"free":                        {nil, single, 0, codes.OK},
		"here already":                {map[string]Publication{"a": single}, single, 9, codes.OK},
		"here in another way":         {map[string]Publication{"a": single}, reader, 0, codes.AlreadyExists},
		"elsewhere":                   {map[string]Publication{"b": single}, single, 0, codes.FailedPrecondition},
		"elsewhere, shared":           {map[string]Publication{"b": shared}, shared, 0, codes.OK},
		"elsewhere, shared otherwise": {map[string]Publication{"b": shared}, reader, 0, codes.FailedPrecondition},
		"wanted alone, shared so far": {map[string]Publication{"b": reader}, single, 0, codes.FailedPrecondition},
		"node full":                   {nil, single, 2, codes.ResourceExhausted},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			err := mayPublish(Volume{ID: "v", Publications: test.have}, Node{ID: "a", MaxVolumes: 2}, test.attached, test.want)
			if status.Code(err) != test.code {
				t.Errorf("publishing volume v on node a: error %v, want code %s", err, test.code)
			}
		})
	}
}

func TestASizeFitsItsRange(t *testing.T) {
	tests := map[string]struct {
		required, limit, want int64
		code                  codes.Code
	}{
		"nothing asked":          {0, 0, defaultSize, codes.OK},
		"rounded up":             {minimumSize + 1, 0, minimumSize + alignment, codes.OK},
		"raised to the smallest": {1, 0, minimumSize, codes.OK},
		"only a limit":           {0, minimumSize + 1, minimumSize, codes.OK},
		"limit below smallest":   {0, 10, 0, codes.OutOfRange},
		"rounded above limit":    {minimumSize + 1, minimumSize + 2, 0, codes.OutOfRange},
		"upside down":            {20, 10, 0, codes.InvalidArgument},
		"negative":               {-1, 0, 0, codes.InvalidArgument},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			size, err := chooseSize(test.required, test.limit)
			if status.Code(err) != test.code || (err == nil && size != test.want) {
				t.Errorf("size for required %d and limit %d: %d, error %v; want %d, code %s", test.required, test.limit, size, err,
					test.want, test.code)
			}
		})
	}
}

func TestAnIDCannotLeaveTheBackingDirectory(t *testing.T) {
	s, err := Open(t.TempDir(), 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"", "..", "../x", "a/b", ".hidden"} {
		if _, err := s.Get(id); status.Code(err) != codes.NotFound {
			t.Errorf("getting volume %q: error %v, want code %s", id, err, codes.NotFound)
		}
		if err := s.Delete(id); err != nil {
			t.Errorf("deleting %q: %v", id, err)
		}
	}
	volume, err := s.Create("../../etc/passwd", 0, 0)
	if err != nil || !validID.MatchString(volume.ID) {
		t.Errorf("volume created as ../../etc/passwd: ID %q, error %v; want a valid ID", volume.ID, err)
	}
}
