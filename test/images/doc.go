/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package images has the end-to-end test of the images: operator, manager and agents run as pods of the images that
// `make images` writes, on real kubelets. It takes minutes; `make test-e2e` runs it.
package images
