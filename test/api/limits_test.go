/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package api

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// limits is the part of a CRD's schema that restricts values.
type limits struct {
	Type                 string            `json:"type"`
	Format               string            `json:"format"`
	Pattern              string            `json:"pattern"`
	Enum                 []any             `json:"enum"`
	MaxLength            *int              `json:"maxLength"`
	MaxItems             *int              `json:"maxItems"`
	Properties           map[string]limits `json:"properties"`
	Items                *limits           `json:"items"`
	AdditionalProperties *limits           `json:"additionalProperties"`
}

// unlimited are strings without a limit of their own.
var unlimited = map[string]string{
	"spec.attachments[].nodeStageSecretRef":   "a type of Kubernetes, whose fields take no marker of ours",
	"spec.attachments[].nodePublishSecretRef": "a type of Kubernetes, whose fields take no marker of ours",
	"spec.attachments[].nodeExpandSecretRef":  "a type of Kubernetes, whose fields take no marker of ours",
	"spec.attachments[].publishContext":       "a driver's; the size of the whole object limits it",
	"spec.attachments[].volumeAttributes":     "a driver's; the size of the whole object limits it",
	"spec.mount.seLinuxOptions":               "a type of Kubernetes; rules of validation limit its fields",
}

func schemaOf(t *testing.T, kind string) limits {
	t.Helper()
	var crd struct {
		Spec struct {
			Versions []struct {
				Schema struct {
					OpenAPIV3Schema limits `json:"openAPIV3Schema"`
				} `json:"schema"`
			} `json:"versions"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(read(t, "config", "crd", "bases", "volumes.hawser.io_"+kind+"s.yaml"), &crd); err != nil {
		t.Fatal(err)
	}
	return crd.Spec.Versions[0].Schema.OpenAPIV3Schema
}

func TestEveryStringAndEveryListHasALimit(t *testing.T) {
	for _, kind := range []string{"volumeattachmentintent", "nodevolumestate"} {
		root := schemaOf(t, kind)
		for _, part := range []string{"spec", "status"} {
			for _, path := range unlimitedIn(part, root.Properties[part]) {
				excused := slices.ContainsFunc(slices.Collect(maps.Keys(unlimited)), func(exception string) bool {
					return strings.HasPrefix(path, exception)
				})
				if !excused {
					t.Errorf("%s.%s has no limit; a limit cannot be added once there is a release", kind, path)
				}
			}
		}
	}
}

// unlimitedIn lists the strings and lists below s that have no limit.
func unlimitedIn(path string, s limits) []string {
	var paths []string
	formatted := s.Format == "date-time" || len(s.Enum) > 0 || s.Pattern != ""
	if s.Type == "string" && s.MaxLength == nil && !formatted || s.Type == "array" && s.MaxItems == nil {
		paths = append(paths, path)
	}
	for name, property := range s.Properties {
		paths = append(paths, unlimitedIn(path+"."+name, property)...)
	}
	if s.Items != nil {
		paths = append(paths, unlimitedIn(path+"[]", *s.Items)...)
	}
	if s.AdditionalProperties != nil {
		paths = append(paths, unlimitedIn(path+"{}", *s.AdditionalProperties)...)
	}
	return paths
}

func TestTheLimitsOfTheCodeAreThoseOfTheSchemas(t *testing.T) {
	state, intent := schemaOf(t, "nodevolumestate"), schemaOf(t, "volumeattachmentintent")
	entry := *state.Properties["spec"].Properties["attachments"].Items
	reported := state.Properties["status"].Properties
	line, driver := *reported["volumes"].Items, *reported["drivers"].Items
	progress := intent.Properties["status"].Properties
	for what, c := range map[string]struct {
		schema *int
		code   int
	}{
		"volumeName of an entry":    {entry.Properties["volumeName"].MaxLength, volumesv1alpha1.MaxVolumeNameLength},
		"volumeName of a volume":    {line.Properties["volumeName"].MaxLength, volumesv1alpha1.MaxVolumeNameLength},
		"volumeName of a release":   {nameOf(reported["mountTableReleases"]), volumesv1alpha1.MaxVolumeNameLength},
		"uniqueVolumeName":          {progress["uniqueVolumeName"].MaxLength, volumesv1alpha1.MaxVolumeNameLength},
		"volumeHandle":              {entry.Properties["volumeHandle"].MaxLength, volumesv1alpha1.MaxVolumeHandleLength},
		"driver":                    {entry.Properties["driver"].MaxLength, volumesv1alpha1.MaxDriverNameLength},
		"name of a driver":          {driver.Properties["name"].MaxLength, volumesv1alpha1.MaxDriverNameLength},
		"attachmentUID of an entry": {entry.Properties["attachmentUID"].MaxLength, volumesv1alpha1.MaxUIDLength},
		"attachments": {state.Properties["spec"].Properties["attachments"].MaxItems,
			volumesv1alpha1.MaxVolumes},
		"volumes":                 {reported["volumes"].MaxItems, volumesv1alpha1.MaxVolumes},
		"mountTableReleases":      {reported["mountTableReleases"].MaxItems, volumesv1alpha1.MaxVolumes},
		"publications":            {line.Properties["publications"].MaxItems, volumesv1alpha1.MaxPublications},
		"drivers":                 {reported["drivers"].MaxItems, volumesv1alpha1.MaxDrivers},
		"conditions of a node":    {reported["conditions"].MaxItems, volumesv1alpha1.MaxConditions},
		"conditions of an intent": {progress["conditions"].MaxItems, volumesv1alpha1.MaxConditions},
		"stagedPath":              {line.Properties["stagedPath"].MaxLength, volumesv1alpha1.MaxPathLength},
		"path":                    {progress["path"].MaxLength, volumesv1alpha1.MaxPathLength},
		"nodeID":                  {driver.Properties["nodeID"].MaxLength, volumesv1alpha1.MaxNodeIDLength},
		"capabilities":            {driver.Properties["capabilities"].MaxItems, volumesv1alpha1.MaxCapabilities},
		"fsType":                  {entry.Properties["fsType"].MaxLength, volumesv1alpha1.MaxFSTypeLength},
		"mountOptions":            {entry.Properties["mountOptions"].MaxItems, volumesv1alpha1.MaxMountOptions},
		"a mount option": {entry.Properties["mountOptions"].Items.MaxLength,
			volumesv1alpha1.MaxMountOptionLength},
		"accessModes":               {entry.Properties["accessModes"].MaxItems, volumesv1alpha1.MaxAccessModes},
		"bootID":                    {reported["bootID"].MaxLength, volumesv1alpha1.MaxBootIDLength},
		"unlistedBootID":            {bootOf(entry), volumesv1alpha1.MaxBootIDLength},
		"agentVersion":              {reported["agentVersion"].MaxLength, volumesv1alpha1.MaxVersionLength},
		"message of the evidence":   {messageOf(entry.Properties["evidence"]), volumesv1alpha1.MaxMessageLength},
		"message of a line's error": {messageOf(line.Properties["error"]), volumesv1alpha1.MaxMessageLength},
		"message of lastError":      {messageOf(progress["lastError"]), volumesv1alpha1.MaxMessageLength},
		"code of lastError":         {progress["lastError"].Properties["code"].MaxLength, volumesv1alpha1.MaxCodeLength},
		"problems of a volume": {line.Properties["health"].Properties["problems"].MaxItems,
			volumesv1alpha1.MaxHealthProblems},
		"problems of a driver": {driver.Properties["storageHealth"].Properties["problems"].MaxItems,
			volumesv1alpha1.MaxHealthProblems},
		"reason of a problem": {problemOf(line).Properties["reason"].MaxLength,
			volumesv1alpha1.MaxHealthReasonLength},
		"message of a problem": {messageOf(problemOf(line)), volumesv1alpha1.MaxHealthMessageLength},
		"message of a condition": {messageOf(*progress["conditions"].Items),
			volumesv1alpha1.MaxConditionMessageLength},
	} {
		if c.schema == nil || *c.schema != c.code {
			t.Errorf("%s: the schema takes %s, the code %d", what, number(c.schema), c.code)
		}
	}
}

func nameOf(list limits) *int { return list.Items.Properties["volumeName"].MaxLength }

func bootOf(entry limits) *int {
	return entry.Properties["protocol"].Properties["unlistedBootID"].MaxLength
}

func problemOf(line limits) limits { return *line.Properties["health"].Properties["problems"].Items }

func messageOf(s limits) *int { return s.Properties["message"].MaxLength }

func number(n *int) string {
	if n == nil {
		return "any number"
	}
	return fmt.Sprint(*n)
}
