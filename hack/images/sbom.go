/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// The form in which BuildKit attaches statements to images: manifests for no platform, beside those of the platforms.
// Whatever copies the whole index copies them too, and runtimes pass over them.
const (
	statementMediaType  = types.MediaType("application/vnd.in-toto+json")
	predicateAnnotation = "in-toto.io/predicate-type"
	referenceDigest     = "vnd.docker.reference.digest"
	referenceType       = "vnd.docker.reference.type"
	unknown             = "unknown"
	spdx                = "https://spdx.dev/Document"
)

// statement says of the subjects what the predicate is.
type statement struct {
	Type          string          `json:"_type"`
	PredicateType string          `json:"predicateType"`
	Subject       []subject       `json:"subject"`
	Predicate     json.RawMessage `json:"predicate"`
}

type subject struct {
	Name   string            `json:"name"`
	Digest map[string]string `json:"digest"`
}

// attachment is the manifest with the SBOM of the image of an architecture.
func (o options) attachment(image v1.Image, architecture string) (mutate.IndexAddendum, error) {
	none := mutate.IndexAddendum{}
	digest, err := image.Digest()
	if err != nil {
		return none, err
	}
	content, err := os.ReadFile(strings.ReplaceAll(o.sboms, "ARCH", architecture))
	if err != nil {
		return none, err
	}
	data, err := json.Marshal(statement{Type: "https://in-toto.io/Statement/v0.1", PredicateType: spdx, Predicate: content,
		Subject: []subject{{Name: o.name, Digest: map[string]string{digest.Algorithm: digest.Hex}}}})
	if err != nil {
		return none, fmt.Errorf("reading the SBOM: %w", err)
	}
	manifest := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	manifest, err = mutate.ConfigFile(manifest, &v1.ConfigFile{OS: unknown, Architecture: unknown,
		RootFS: v1.RootFS{Type: "layers"}})
	if err != nil {
		return none, err
	}
	manifest, err = mutate.Append(manifest, mutate.Addendum{Layer: static.NewLayer(data, statementMediaType),
		MediaType: statementMediaType, Annotations: map[string]string{predicateAnnotation: spdx}})
	return mutate.IndexAddendum{Add: untyped{manifest}, Descriptor: v1.Descriptor{
		Platform:    &v1.Platform{OS: unknown, Architecture: unknown},
		Annotations: map[string]string{referenceDigest: digest.String(), referenceType: "attestation-manifest"},
	}}, err
}
