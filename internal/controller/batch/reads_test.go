/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package batch

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/hawser-io/hawser/internal/controller/inflight"
)

func TestARequestDuringAReadIsAnsweredByTheNextRead(t *testing.T) {
	var reads atomic.Int32
	begun, goOn := make(chan int32), make(chan struct{})
	r := NewReads(nil, func(context.Context, string) (int32, error) {
		n := reads.Add(1)
		begun <- n
		<-goOn
		return n, nil
	})
	ask := func() *reader[int32] {
		one := &reader[int32]{done: make(chan struct{})}
		r.batches.Add("key", one, r.commit)
		return one
	}
	first := ask()
	<-begun
	var later []*reader[int32]
	for range 10 {
		later = append(later, ask())
	}
	goOn <- struct{}{}
	<-begun
	goOn <- struct{}{}
	if <-first.done; first.value != 1 {
		t.Errorf("first request was answered by read %d, want 1", first.value)
	}
	for _, one := range later {
		if <-one.done; one.value != 2 {
			t.Errorf("a request during the first read was answered by read %d, want 2", one.value)
		}
	}
	if n := reads.Load(); n != 2 {
		t.Errorf("%d reads of key, want 2", n)
	}
}

func TestAFailedReadIsReturned(t *testing.T) {
	r := NewReads(inflight.New(1), func(context.Context, string) (int, error) { return 0, errors.ErrUnsupported })
	if _, err := r.Get(t.Context(), "key"); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("error of a failed read: %v, want %v", err, errors.ErrUnsupported)
	}
}

func TestACancelledRequestDoesNotEndTheReadOfTheOthers(t *testing.T) {
	begun, goOn := make(chan struct{}), make(chan struct{})
	r := NewReads(nil, func(ctx context.Context, _ string) (int, error) {
		begun <- struct{}{}
		<-goOn
		return 7, ctx.Err()
	})
	ctx, giveUp := context.WithCancel(t.Context())
	gone := make(chan error)
	go func() { _, err := r.Get(ctx, "key"); gone <- err }()
	<-begun
	giveUp()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Errorf("error of the request that was canceled: %v, want %v", err, context.Canceled)
	}
	answered := make(chan error)
	go func() { _, err := r.Get(t.Context(), "key"); answered <- err }()
	goOn <- struct{}{}
	<-begun
	goOn <- struct{}{}
	if err := <-answered; err != nil {
		t.Error(err)
	}
}
