/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package apiserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// store is a control plane's etcd. Requests use etcd's JSON gateway, where keys are base64, like []byte in JSON.
type store struct {
	url *url.URL
}

// keys returns the version of each key.
func (s store) keys() (map[string]string, error) {
	var answer struct {
		More bool `json:"more"`
		Kvs  []struct {
			Key     []byte `json:"key"`
			Version string `json:"mod_revision"`
		} `json:"kvs"`
	}
	all := map[string]any{"key": []byte("/registry/"), "range_end": []byte("/registry0"), "keys_only": true}
	if err := s.post("/v3/kv/range", all, &answer); err != nil {
		return nil, fmt.Errorf("reading the keys of etcd: %w", err)
	}
	if answer.More {
		return nil, errors.New("etcd answered with some of its keys only")
	}
	keys := map[string]string{}
	for _, kv := range answer.Kvs {
		keys[string(kv.Key)] = kv.Version
	}
	return keys, nil
}

// operations is how many operations etcd accepts in one transaction.
const operations = 100

// remove deletes the keys, whatever finalizers their objects have. The API server sees it as any other delete.
func (s store) remove(keys []string) error {
	for part := range slices.Chunk(keys, operations) {
		var deletes []any
		for _, key := range part {
			deletes = append(deletes, map[string]any{"request_delete_range": map[string]any{"key": []byte(key)}})
		}
		if err := s.post("/v3/kv/txn", map[string]any{"success": deletes}, &struct{}{}); err != nil {
			return fmt.Errorf("deleting keys of etcd: %w", err)
		}
	}
	return nil
}

func (s store) post(path string, request, answer any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	r, err := http.Post(s.url.JoinPath(path).String(), "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	if err = json.NewDecoder(r.Body).Decode(answer); r.StatusCode != http.StatusOK {
		err = errors.New(r.Status)
	}
	return errors.Join(err, r.Body.Close())
}

// followed are the kinds that configure the API server itself. It applies their changes after a delay, without
// a signal.
var followed = []string{"admissionregistration.k8s.io/", "apiextensions.k8s.io/", "apiregistration.k8s.io/",
	"clusterrole", "role"}

// added returns the new keys since an earlier time. It returns false if deleting them cannot restore that time.
func added(before, now map[string]string) ([]string, bool) {
	var names []string
	for key, version := range now {
		kind := strings.TrimPrefix(key, "/registry/")
		was, found := before[key]
		if !found {
			names = append(names, key)
		}
		if was != version && isFollowed(kind) || found && was != version && !isLease(kind) {
			return nil, false
		}
	}
	for key := range before {
		if _, found := now[key]; !found {
			return nil, false
		}
	}
	return names, true
}

func isFollowed(kind string) bool {
	return slices.ContainsFunc(followed, func(f string) bool { return strings.HasPrefix(kind, f) })
}

// isLease reports whether the API server renews objects of the kind.
func isLease(kind string) bool {
	of, _, _ := strings.Cut(kind, "/")
	return strings.HasSuffix(of, "leases")
}
