/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package bare

import (
	"context"
	"fmt"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hawser-io/hawser/test/apiserver"
	"github.com/hawser-io/hawser/test/bench/attach/feed"
	"github.com/hawser-io/hawser/test/bench/attach/stage"
)

// Serve handles one kind of wish.
type Serve func(*Client, context.Context, *feed.Feed) error

// Run serves the volumes of a stage file until ctx ends, in its own process. It has its own connections and
// watches, with the same settings as Hawser's manager.
func Run(ctx context.Context, config *rest.Config, stageFile string, serve Serve) error {
	s, err := stage.Read(stageFile)
	if err != nil {
		return err
	}
	config.QPS, config.DisableCompression = -1, true
	api, err := client.New(config, client.Options{Scheme: apiserver.Scheme()})
	if err != nil {
		return fmt.Errorf("creating a client: %w", err)
	}
	f, err := feed.New(config)
	if err != nil {
		return err
	}
	serving, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	c := New(api, s, fail)
	if err := serve(c, serving, f); err != nil {
		return err
	}
	if err := f.Start(serving); err != nil {
		return err
	}
	<-serving.Done()
	c.running.Wait()
	if ctx.Err() != nil {
		return nil // the benchmark stopped it
	}
	return context.Cause(serving)
}
