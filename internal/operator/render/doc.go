/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package render turns a VolumeManager into the objects of an installation.
//
// The objects are those of the manifests in config: the same files that kubectl applies with -k. A component of config
// belongs to the installation if the spec asks for it. What a component patches are flags of the manager; here the
// spec sets them. The package reads and writes nothing else.
package render
