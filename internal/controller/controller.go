/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package controller puts the cluster side together.
package controller

import (
	"context"
	"fmt"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/hawser-io/hawser/internal/controller/attachment"
	"github.com/hawser-io/hawser/internal/controller/claim"
	"github.com/hawser-io/hawser/internal/controller/index"
	"github.com/hawser-io/hawser/internal/controller/intent"
	"github.com/hawser-io/hawser/internal/controller/liveness"
	"github.com/hawser-io/hawser/internal/controller/node"
	"github.com/hawser-io/hawser/internal/controller/nodestate"
	"github.com/hawser-io/hawser/internal/controller/report"
)

// Register adds every controller and the indexes that they need to the manager, whose cache must
// have been made with cached.Options.
func Register(ctx context.Context, mgr manager.Manager, c clock.PassiveClock) error {
	if err := index.Register(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	events := mgr.GetEventRecorder("hawser")
	reporter := &report.Reporter{Client: mgr.GetClient(), Events: events, Clock: c}
	writer := &nodestate.Writer{Client: mgr.GetClient(), Reader: mgr.GetAPIReader()}
	tracker := liveness.NewTracker(c)
	for name, controller := range map[string]interface {
		Register(ctrl.Manager) error
	}{
		"intent": &intent.Controller{Client: mgr.GetClient(), Reporter: reporter},
		"claim":  &claim.Controller{Client: mgr.GetClient()},
		"node":   &node.Controller{Client: mgr.GetClient(), Tracker: tracker, Writer: writer},
		"attachment": &attachment.Controller{
			Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Writer: writer, Reporter: reporter,
			Tracker: tracker, Events: events, Clock: c,
		},
	} {
		if err := controller.Register(mgr); err != nil {
			return fmt.Errorf("registering the %s controller: %w", name, err)
		}
	}
	return nil
}
