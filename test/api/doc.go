/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package api has the tests of the API that need an API server or the files of other directories. The module api
// itself requires nothing but the types of Kubernetes.
package api
