/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/hawser-io/hawser/internal/version"
)

// BuildInfo is 1 for the program that runs. Its absence shows that the program is not scraped, whatever the scrape
// job is called.
func BuildInfo(component string) prometheus.Collector {
	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "hawser_build_info",
		Help: "1, with the version of the program. component is manager, agent, operator or observer.",
	}, []string{"component", "version"})
	info.WithLabelValues(component, version.Version).Set(1)
	return info
}
