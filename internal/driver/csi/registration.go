/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package csi

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"k8s.io/apimachinery/pkg/util/wait"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// registrationTimeout bounds one attempt to identify a socket's plugin. It is long enough for a plugin that has created
// its socket but does not listen yet.
const registrationTimeout = 10 * time.Second

// redial retries a plugin's socket soon after it refused, because the plugin did not listen yet.
var redial = grpc.WithConnectParams(grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 2, Jitter: 0.2, MaxDelay: time.Second},
	MinConnectTimeout: registrationTimeout,
})

// registrationBackoff spaces the attempts while a socket exists but does not answer correctly.
func registrationBackoff() wait.Backoff {
	return wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.1, Steps: 10, Cap: time.Minute}
}

// identify asks until the socket's driver has described itself, or until ctx ends. The context ends when the socket
// is removed or replaced. The result is nil, nil if the plugin is not a driver. identify calls named with the driver's
// endpoint before it calls the driver.
func (r *Registry) identify(ctx context.Context, socket string, named func(endpoint string)) (*Driver, error) {
	log := logr.FromContextOrDiscard(ctx)
	delays := registrationBackoff()
	for attempt := 0; ; attempt++ {
		d, err := r.identifyOnce(ctx, socket, named)
		if err == nil || ctx.Err() != nil {
			return d, ctx.Err()
		}
		delay := delays.Step()
		// A socket that a crash left behind may exist for a long time. It is worth one log line, not one a minute.
		log.V(min(attempt, 1)).Info("A plugin does not register, trying again", "socket", socket, "error",
			err.Error(), "in", delay)
		timer := r.clock.NewTimer(delay)
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		}
	}
}

// identifyOnce makes one attempt to identify the plugin.
func (r *Registry) identifyOnce(ctx context.Context, socket string, named func(endpoint string)) (*Driver, error) {
	ctx, cancel := context.WithTimeout(ctx, registrationTimeout)
	defer cancel()
	info, err := pluginInfo(ctx, socket)
	if err != nil {
		return nil, fmt.Errorf("reading plugin info: %w", err)
	}
	if info.GetType() != registerapi.CSIPlugin || info.GetName() == volumesv1alpha1.InlineDriver {
		return nil, nil // the agent's own plugin has no volumes of its own
	}
	if !supported(info.GetSupportedVersions()) {
		return nil, fmt.Errorf("driver %s supports versions %v of CSI, none of them is 1",
			info.GetName(), info.GetSupportedVersions())
	}
	if len(info.GetName()) > volumesv1alpha1.MaxDriverNameLength {
		return nil, fmt.Errorf("driver %.*s... has a name of %d bytes; Kubernetes allows %d",
			volumesv1alpha1.MaxDriverNameLength, info.GetName(), len(info.GetName()), volumesv1alpha1.MaxDriverNameLength)
	}
	endpoint := info.GetEndpoint()
	if endpoint == "" {
		endpoint = socket
	}
	named(endpoint)
	return Connect(ctx, info.GetName(), endpoint, r.metrics)
}

// pluginInfo waits until the plugin listens at the socket, or until ctx ends. Only the kubelet notifies the plugin that
// it is registered.
func pluginInfo(ctx context.Context, socket string) (*registerapi.PluginInfo, error) {
	var info *registerapi.PluginInfo
	_, err := call(ctx, socket, []grpc.DialOption{redial}, func(ctx context.Context, conn *grpc.ClientConn) (err error) {
		info, err = registerapi.NewRegistrationClient(conn).GetInfo(ctx, &registerapi.InfoRequest{}, grpc.WaitForReady(true))
		return err
	})
	return info, err
}

// supported reports whether one of the versions is 1.x. CSI has had no other major version since it is stable.
func supported(versions []string) bool {
	for _, version := range versions {
		major, _, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
		if major == "1" {
			return true
		}
	}
	return false
}
