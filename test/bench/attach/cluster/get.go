/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package cluster

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"k8s.io/client-go/rest"
)

// Get what a server answers at path.
func Get(ctx context.Context, config *rest.Config, path string) ([]byte, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(config.Host, "/")+path, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("getting %s: %w", path, err)
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("getting %s: %w", path, err)
	}
	defer func() { _ = response.Body.Close() }() // only read
	data, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("answer %s", response.Status)
	}
	if err != nil {
		return nil, fmt.Errorf("getting %s: %w", path, err)
	}
	return data, nil
}
