/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package attachment

import (
	"errors"

	"github.com/hawser-io/hawser/internal/controller/exclusive"
)

var unreadable = &exclusive.UnreadableError{ConfigMap: "hawser/locks", Err: errors.New("no JSON")}
