/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

// shared are the control planes of this process that no test uses at present.
var shared struct {
	sync.Mutex
	open bool
	free []*controlPlane
}

// Main runs the tests of a package that borrow control planes, and then stops the control planes.
func Main(m *testing.M) int {
	shared.open = true
	code := m.Run()
	for _, p := range shared.free {
		if err := p.stop(); err != nil {
			fmt.Println("FAIL:", err)
			code = 1
		}
	}
	return code
}

// Borrow gives the test exclusive use of a control plane until the test ends. Earlier tests may have used it,
// but none of their objects and requests is left. If a test changed how the API server itself works, for
// example kinds or admission policies, its control plane is stopped.
func Borrow(t *testing.T) (*rest.Config, client.WithWatch) {
	t.Helper()
	needPrograms(t)
	p, err := take()
	if err != nil {
		t.Fatal(err)
	}
	use := &use{}
	t.Cleanup(func() {
		use.end()
		if err := p.giveBack(); err != nil {
			t.Error(err)
		}
	})
	config := rest.CopyConfig(p.config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return roundTripper{use, next} })
	c, err := newClient(config, p.client.RESTMapper())
	if err != nil {
		t.Fatal(err)
	}
	return config, c
}

func take() (*controlPlane, error) {
	shared.Lock()
	if !shared.open {
		shared.Unlock()
		return nil, errors.New("the package's TestMain does not run apiserver.Main, which stops control planes")
	}
	n := len(shared.free)
	if n == 0 {
		shared.Unlock()
		return start()
	}
	defer shared.Unlock()
	p := shared.free[n-1]
	shared.free = shared.free[:n-1]
	return p, nil
}

// giveBack restores the control plane for the next test, or stops it.
func (p *controlPlane) giveBack() error {
	empty, err := p.empty(context.Background())
	if err != nil || !empty {
		return errors.Join(err, p.stop())
	}
	shared.Lock()
	defer shared.Unlock()
	shared.free = append(shared.free, p)
	return nil
}

// empty deletes everything that was created since the beginning. It returns false if the initial state cannot be
// restored so.
func (p *controlPlane) empty(ctx context.Context) (bool, error) {
	for {
		now, err := p.store.keys()
		if err != nil {
			return false, err
		}
		names, ok := added(p.beginning, now)
		if !ok {
			return false, nil
		}
		if len(names) == 0 {
			break
		}
		if err := p.store.remove(names); err != nil {
			return false, err
		}
	}
	served, err := p.count(ctx)
	return slices.Equal(served, p.served), err
}

// count returns the number of objects of each kind that tests create. The API server answers a list without a version
// only when its caches have followed the store.
func (p *controlPlane) count(ctx context.Context) ([]int, error) {
	var counts []int
	for _, list := range []client.ObjectList{
		&volumesv1alpha1.VolumeAttachmentIntentList{}, &volumesv1alpha1.NodeVolumeStateList{},
		&volumesv1alpha1.VolumeAttachmentIntentSetList{}, &storagev1.VolumeAttachmentList{},
		&storagev1.CSINodeList{}, &storagev1.CSIDriverList{}, &corev1.NodeList{}, &corev1.PodList{},
		&corev1.PersistentVolumeList{},
		&corev1.PersistentVolumeClaimList{}, &corev1.NamespaceList{}, &corev1.ConfigMapList{}, &coordinationv1.LeaseList{},
	} {
		if err := p.client.List(ctx, list); err != nil {
			return nil, fmt.Errorf("counting what a control plane has: %w", err)
		}
		counts = append(counts, meta.LenList(list))
	}
	return counts, nil
}

// use is the use of a control plane by one test. No request passes after its end, even if a part of the test
// still runs: an agent that was killed, or a manager that sleeps.
type use struct {
	mu       sync.RWMutex
	over     bool
	underway sync.WaitGroup
}

// end refuses new requests and waits for those that are running, except for watches that were answered.
func (u *use) end() {
	u.mu.Lock()
	u.over = true
	u.mu.Unlock()
	u.underway.Wait()
}

func (u *use) begin() bool {
	u.mu.RLock()
	defer u.mu.RUnlock()
	if !u.over {
		u.underway.Add(1)
	}
	return !u.over
}

type roundTripper struct {
	use  *use
	next http.RoundTripper
}

func (r roundTripper) RoundTrip(request *http.Request) (*http.Response, error) {
	if !r.use.begin() {
		return nil, errors.New("the test that this control plane was borrowed for has ended")
	}
	defer r.use.underway.Done()
	return r.next.RoundTrip(request)
}
