/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package images has the end-to-end tests of the images: operator, manager and agents run as pods of the images that
// `make images` writes, on real kubelets. They take minutes. `make test-e2e` runs the test of the present images, and
// `make test-upgrade` the one that upgrades from an earlier revision and goes back.
package images
