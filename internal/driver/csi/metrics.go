/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package csi

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

// Metrics counts and times the calls to drivers. It has the name, labels and buckets of the kubelet's metric.
type Metrics struct {
	operations *prometheus.HistogramVec
}

// NewMetrics returns Metrics that are registered with reg.
func NewMetrics(reg prometheus.Registerer) (*Metrics, error) {
	m := newMetrics()
	if err := reg.Register(m.operations); err != nil {
		return nil, fmt.Errorf("registering metrics: %w", err)
	}
	return m, nil
}

func newMetrics() *Metrics {
	return &Metrics{operations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "csi_operations_seconds",
		Help: "Duration of each call to a CSI driver's node plugin, in seconds. method_name is such as " +
			"/csi.v1.Node/NodeStageVolume. migrated is always false: the node knows CSI volumes only.",
		Buckets: []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600},
	}, []string{"driver_name", "method_name", "grpc_status_code", "migrated"})}
}

// Collectors are this package's metrics, to describe them.
func Collectors() []prometheus.Collector { return []prometheus.Collector{newMetrics().operations} }

// dialOptions let a connection count its calls. There are none for nil Metrics.
func (m *Metrics) dialOptions(driverName string) []grpc.DialOption {
	if m == nil {
		return nil
	}
	return []grpc.DialOption{grpc.WithUnaryInterceptor(func(
		ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker,
		options ...grpc.CallOption,
	) error {
		start := time.Now()
		err := invoke(ctx, method, req, reply, conn, options...)
		// Only the controller knows if a volume is migrated. The node handles CSI volumes only.
		m.operations.WithLabelValues(driverName, method, codeOf(err), "false").Observe(time.Since(start).Seconds())
		return err
	})}
}

// codeOf is the gRPC code's name, or upstream's label for any other error.
func codeOf(err error) string {
	s, ok := status.FromError(err)
	if !ok {
		return "unknown-non-grpc"
	}
	return s.Code().String()
}
