/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package volumes

import (
	"context"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/test/apiserver"
)

// The examples of pkg/volumes run as they are in its documentation, in their own process. This test does what Hawser
// does.
func TestTheExamplesDoWhatTheyPrint(t *testing.T) {
	config, c := apiserver.Borrow(t)
	ofThePod := newIntent("of-the-pod", "data")
	create(t, c, ofThePod)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	carryOut(ctx, t, c)
	if _, err := newClient(t, config).WaitForReady(limited(t), keyOf(ofThePod.Name)); err != nil {
		t.Fatal(err)
	}

	examples := exec.CommandContext(ctx, "go", "test", "-count=1", "-v", "-run=^Example",
		"github.com/hawser-io/hawser/pkg/volumes")
	examples.Dir = apiserver.Root()
	examples.Env = append(os.Environ(), "HAWSER_EXAMPLES_SERVER="+plain(t, config))
	output, err := examples.CombinedOutput()
	source, failed := os.ReadFile(filepath.Join(apiserver.Root(), "pkg", "volumes", "example_test.go"))
	if failed != nil {
		t.Fatal(failed)
	}
	want := strings.Count(string(source), "\nfunc Example")
	if passed := strings.Count(string(output), "--- PASS: Example"); err != nil || passed != want || want == 0 {
		t.Errorf("the examples: %v, %d passed; want %d:\n%s", err, passed, want, output)
	}
}

// plain is the address of a server that passes requests on to the API server, without certificates.
func plain(t *testing.T, config *rest.Config) string {
	t.Helper()
	to, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(&httputil.ReverseProxy{Transport: transport, FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }})
	t.Cleanup(server.Close)
	return server.URL
}

// carryOut reports each intent as Ready, or that its claim is missing.
func carryOut(ctx context.Context, t *testing.T, c client.WithWatch) {
	t.Helper()
	changes, err := c.Watch(ctx, &volumesv1alpha1.VolumeAttachmentIntentList{})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for change := range changes.ResultChan() {
			if i, ok := change.Object.(*volumesv1alpha1.VolumeAttachmentIntent); ok && change.Type == watch.Added {
				report(t, c, i)
			}
		}
	}()
	t.Cleanup(func() {
		changes.Stop()
		<-done
	})
}

// report writes a status. It runs beside the test, which therefore goes on after a failure.
func report(t *testing.T, c client.Client, i *volumesv1alpha1.VolumeAttachmentIntent) {
	t.Helper()
	ready := metav1.Condition{Type: volumesv1alpha1.ConditionReady, Status: metav1.ConditionTrue,
		Reason: volumesv1alpha1.ReasonReady, ObservedGeneration: i.Generation, LastTransitionTime: metav1.Now()}
	if i.Spec.Volume.PersistentVolumeClaim.ClaimName == "missing" {
		ready.Status, ready.Reason = metav1.ConditionFalse, volumesv1alpha1.ReasonClaimNotFound
	} else {
		i.Status.Path = filepath.Join("/var/lib/hawser/published", i.Namespace, i.Name)
	}
	i.Status.ObservedGeneration, i.Status.Conditions = i.Generation, []metav1.Condition{ready}
	if err := c.Status().Update(t.Context(), i); err != nil {
		t.Errorf("writing the status of intent %s: %v", i.Name, err)
	}
}
