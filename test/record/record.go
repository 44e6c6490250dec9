/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package record keeps every version of objects that real programs write. Tests of tools that judge objects by their
// conditions read the records from test/gitops/testdata.
package record

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/hawser-io/hawser/test/apiserver"
)

// Variable has Keep write the records again.
const Variable = "HAWSER_TEST_RECORD"

// directory of a test's cluster, which is another one each time.
var directory = regexp.MustCompile(`/tmp/hawser-e2e-[0-9]+`)

// Start watches objects. The returned function ends that, and returns every version that came, the oldest first.
func Start(t testing.TB, c client.WithWatch, list client.ObjectList, options ...client.ListOption,
) (stop func() []client.Object) {
	t.Helper()
	w, err := c.Watch(context.WithoutCancel(t.Context()), list, options...)
	if err != nil {
		t.Fatal(err)
	}
	var versions []client.Object
	var done sync.WaitGroup
	done.Go(func() {
		for event := range w.ResultChan() {
			if object, ok := event.Object.(client.Object); ok && event.Type != watch.Deleted {
				versions = append(versions, object)
			}
		}
	})
	end := sync.OnceFunc(func() {
		w.Stop()
		done.Wait()
	})
	t.Cleanup(end)
	return func() []client.Object {
		end()
		return versions
	}
}

// Keep writes the record of that name, if it was asked to. It leaves out versions that no such tool can distinguish
// from the one before.
func Keep(t testing.TB, name string, versions []client.Object) {
	t.Helper()
	if os.Getenv(Variable) == "" {
		return
	}
	var out bytes.Buffer
	var before any
	for _, v := range versions {
		v.SetManagedFields(nil)
		judged := judgedBy(t, v)
		if reflect.DeepEqual(judged, before) {
			continue
		}
		before = judged
		text, err := yaml.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		out.WriteString("---\n")
		out.Write(text)
	}
	path := filepath.Join(apiserver.Root(), "test", "gitops", "testdata", name+".yaml")
	text := directory.ReplaceAll(out.Bytes(), nil)
	if err := os.WriteFile(path, text, 0o644); err != nil { //nolint:gosec // a record that everybody may read
		t.Fatal(err)
	}
}

// judgedBy is what tools judge an object by.
func judgedBy(t testing.TB, object client.Object) any {
	t.Helper()
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		t.Fatal(err)
	}
	conditions, _, _ := unstructured.NestedSlice(fields, "status", "conditions")
	for _, c := range conditions {
		if fields, ok := c.(map[string]any); ok {
			delete(fields, "message")
			delete(fields, "lastTransitionTime")
		}
	}
	observed, _, _ := unstructured.NestedInt64(fields, "status", "observedGeneration")
	return []any{object.GetGeneration(), observed, object.GetDeletionTimestamp() != nil, conditions}
}
