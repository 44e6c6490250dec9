/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// Client of a server.
type Client struct {
	// URL of the server.
	URL string
}

// grace is how much longer the client waits than the script may run.
const grace = 20 * time.Second

// Run runs a script. A script that fails or does not end is no error.
func (c Client) Run(ctx context.Context, command Command) (Answer, error) {
	body, err := json.Marshal(command)
	if err != nil {
		return Answer{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, command.Timeout+grace)
	defer cancel()
	data, err := c.request(ctx, http.MethodPost, "/run", body)
	if err != nil {
		return Answer{}, fmt.Errorf("running %q: %w", command.Script, err)
	}
	var answer Answer
	if err := json.Unmarshal(data, &answer); err != nil {
		return Answer{}, fmt.Errorf("reading the answer to %q: %w", command.Script, err)
	}
	return answer, nil
}

// BootID of the machine.
func (c Client) BootID(ctx context.Context) (string, error) {
	data, err := c.request(ctx, http.MethodGet, "/boot", nil)
	return strings.TrimSpace(string(data)), err
}

// request has a connection of its own, because a machine that was reset does not close the earlier ones.
func (c Client) request(ctx context.Context, method, path string, body []byte) (data []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, method, c.URL+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Close = true
	client := &http.Client{Transport: &http.Transport{}}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	data, err = io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %s: %s", response.Status, bytes.TrimSpace(data))
	}
	return data, err
}
