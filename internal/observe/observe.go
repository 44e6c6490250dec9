/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package observe examines a cluster for as long as it runs, and has what package doctor finds as metrics. It works
// without Hawser in the cluster, only reads, and needs nothing on the nodes.
package observe

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/hawser-io/hawser/internal/doctor"
	"github.com/hawser-io/hawser/internal/doctor/read"
	"github.com/hawser-io/hawser/internal/explain/facts"
	"github.com/hawser-io/hawser/internal/explain/live"
	"github.com/hawser-io/hawser/internal/explain/server"
)

const (
	// between two examinations. Nothing is found before it is two minutes old, so more would compute in vain.
	between = 15 * time.Second
	// aged is how long a report is kept without a change: what waits gets older by time alone.
	aged = time.Minute
	// limit of one examination. Only the first one reads lists.
	limit = 5 * time.Minute
)

// Observer examines a cluster.
type Observer struct {
	server *server.Reader
	// between two examinations.
	between time.Duration
	// examined is called after each examination.
	examined func()
	// report of the last examination that succeeded.
	report atomic.Pointer[doctor.Report]
	// failed is whether the last examination could read nothing.
	failed atomic.Bool
}

// New connects to the cluster.
func New(config *rest.Config) (*Observer, error) {
	r, err := server.New(config, "hawser-observer")
	if err != nil {
		return nil, err
	}
	return &Observer{server: r, between: between, examined: func() {}}, nil
}

// Start examines the cluster until the context ends: it follows what it has read by watches, and examines again what
// has changed. What cannot be read is tried again.
func (o *Observer) Start(ctx context.Context) error {
	logger := log.FromContext(ctx).WithName("observer")
	followed := live.New(ctx, o.server, o.server, func(what string, err error) {
		logger.Info("cannot be followed, and is read for each examination", "what", what, "reason", err.Error())
	})
	followed.Trim = func(object client.Object) { read.Trim(object) }
	for {
		err := o.examine(ctx, followed)
		if ctx.Err() != nil {
			return nil
		}
		if o.failed.Store(err != nil); err != nil {
			logger.Error(err, "examining the cluster")
		}
		o.examined()
		if followed.Wait(ctx, aged, o.between) != nil {
			return nil
		}
	}
}

func (o *Observer) examine(ctx context.Context, followed *live.Reader) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	followed.Begin()
	from := reader{followed, o.server}
	g := &facts.Gatherer{Reader: from}
	if err := g.FindSystem(ctx); err != nil {
		return fmt.Errorf("finding Hawser's namespace: %w", err)
	}
	c, err := read.Cluster(ctx, from, "", g.System)
	if err != nil {
		return err
	}
	if err := c.Unreadable(); err != nil {
		return err
	}
	followed.End()
	o.report.Store(doctor.Examine(c, o.server.Clock.Now()))
	return nil
}

// reader reads through watches. Two things it does otherwise than the plugin.
type reader struct {
	*live.Reader
	server facts.Reader
}

// Installed asks each time: kinds come and go, and memory does not show whether the API server still answers.
func (r reader) Installed(ctx context.Context) (bool, error) { return r.server.Installed(ctx) }

// Get answers in place of the API server what the observer has no right to: whether a Secret or a ConfigMap exists.
// That is all that is read as metadata.
func (r reader) Get(ctx context.Context, key client.ObjectKey, into client.Object, o ...client.GetOption) error {
	if metadata, ok := into.(*metav1.PartialObjectMetadata); ok {
		return apierrors.NewForbidden(schema.GroupResource{Resource: metadata.Kind}, key.Name,
			errors.New("an observer does not read it"))
	}
	return r.Reader.Get(ctx, key, into, o...)
}

// Ready is a readiness check: the cluster has been examined.
func (o *Observer) Ready(*http.Request) error {
	if o.report.Load() == nil {
		return errors.New("the cluster has not been examined yet")
	}
	return nil
}
