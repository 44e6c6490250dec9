/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package alerts

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// sample is one series of an answer.
type sample struct {
	Metric map[string]string `json:"metric"`
	Value  [2]any            `json:"value"`
	Values [][2]any          `json:"values"`
}

// query asks Prometheus for the values of an expression now.
func (s *suite) query(ctx context.Context, expression string) ([]sample, error) {
	return s.ask(ctx, "query", url.Values{"query": {expression}})
}

// queryRange asks for its values between two times.
func (s *suite) queryRange(ctx context.Context, expression string, from, to time.Time, step time.Duration,
) ([]sample, error) {
	return s.ask(ctx, "query_range", url.Values{"query": {expression}, "step": {step.String()},
		"start": {from.Format(time.RFC3339)}, "end": {to.Format(time.RFC3339)}})
}

func (s *suite) ask(ctx context.Context, kind string, values url.Values) ([]sample, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet,
		"http://"+s.addresses[prometheus]+"/api/v1/"+kind+"?"+values.Encode(), http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("asking Prometheus: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("asking Prometheus: %w", err)
	}
	defer response.Body.Close() //nolint:errcheck // read to its end
	var answer struct {
		Error string `json:"error"`
		Data  struct {
			Result []sample `json:"result"`
		} `json:"data"`
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return nil, fmt.Errorf("reading the answer of Prometheus: %w", err)
	}
	if answer.Error != "" {
		return nil, fmt.Errorf("asking Prometheus for %s: %s", values.Get("query"), answer.Error)
	}
	return answer.Data.Result, nil
}

// awaitSample waits until Prometheus has a sample. It pushes alerts, but announces no samples, so it is asked once for
// each scrape.
func (s *suite) awaitSample(ctx context.Context, expression string) error {
	scrape := time.NewTicker(time.Second)
	defer scrape.Stop()
	for {
		found, err := s.query(ctx, expression)
		if err != nil || len(found) > 0 {
			return err
		}
		select {
		case <-scrape.C:
		case <-ctx.Done():
			return fmt.Errorf("waiting for samples of %s: %w", expression, ctx.Err())
		}
	}
}
