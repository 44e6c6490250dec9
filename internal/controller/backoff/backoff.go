/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package backoff is how long the controllers wait after a pass that failed, most often because the API
// server did not answer.
package backoff

import (
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/hawser-io/hawser/internal/status"
)

// longest is short, because what fails here is the API server: when it is back, nothing should have to wait
// for minutes. Failures of a driver have a backoff of their own, in the intent's lastError.
const longest = 8 * time.Second

// Limiter doubles the wait with each failure in a row of the same object.
func Limiter() workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](status.FirstBackoff, longest)
}
