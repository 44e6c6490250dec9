/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package fake

import (
	"context"
	"errors"
	"sync"

	"github.com/hawser-io/hawser/internal/driver"
)

// script is the scripted course of one future call.
type script struct {
	err    error
	effect bool
	hang   *Hang
}

// FailNext makes the next call of the method fail with err, without an effect. Scripts of one method apply in order.
func (d *Driver) FailNext(m Method, err error) { d.add(m, &script{err: err}) }

// FailNextAfterEffect makes the next call of the method have its effect and then fail with err.
func (d *Driver) FailNextAfterEffect(m Method, err error) { d.add(m, &script{err: err, effect: true}) }

// HangNext makes the next call of the method hang. When the caller gives up, the call continues without it.
func (d *Driver) HangNext(m Method) *Hang {
	h := &Hang{entered: make(chan struct{}), decided: make(chan struct{}), ended: make(chan struct{})}
	d.add(m, &script{hang: h})
	return h
}

func (d *Driver) add(m Method, s *script) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.scripts[m] = append(d.scripts[m], s)
}

// Hang is a call that hangs until it is released or dropped. Until then every other call for its volume fails with
// Aborted. Drivers that run one operation at a time for each volume do the same.
type Hang struct {
	entered, decided, ended chan struct{}
	once                    sync.Once
	effect                  bool
}

// Entered is closed when the call hangs.
func (h *Hang) Entered() <-chan struct{} { return h.entered }

// Ended is closed when the call has ended, after a release or a drop.
func (h *Hang) Ended() <-chan struct{} { return h.ended }

// Release lets the call have its effect, even if its caller gave up long ago.
func (h *Hang) Release() { h.decide(true) }

// Drop ends the call without an effect.
func (h *Hang) Drop() { h.decide(false) }

func (h *Hang) decide(effect bool) {
	h.once.Do(func() {
		h.effect = effect
		close(h.decided)
	})
}

// begin records the call and takes its script.
func (d *Driver) begin(call Call) (*script, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = append(d.calls, call)
	v := d.volumes[call.Handle]
	if v != nil && v.busy {
		return nil, &driver.Error{Outcome: driver.Uncertain, Code: "Aborted",
			Message: "another operation for volume " + call.Handle + " is running"}
	}
	waiting := d.scripts[call.Method]
	if len(waiting) == 0 {
		return &script{effect: true}, nil
	}
	d.scripts[call.Method] = waiting[1:]
	if v != nil {
		v.busy = waiting[0].hang != nil
	}
	return waiting[0], nil
}

// carryOut runs a call as its script says. work is its effect.
func (d *Driver) carryOut(ctx context.Context, call Call, work func(*volume) error) error {
	if err := ctx.Err(); err != nil {
		return ended(driver.Transient, err) // nothing was sent
	}
	s, err := d.begin(call)
	if err != nil {
		return err
	}
	if s.hang == nil {
		return d.finish(call, s, work)
	}
	close(s.hang.entered)
	result := make(chan error, 1)
	go func() {
		defer close(s.hang.ended)
		<-s.hang.decided
		s.effect = s.hang.effect
		if !s.effect {
			s.err = &driver.Error{Outcome: driver.Uncertain, Code: "Unavailable", Message: "the driver died during the call"}
		}
		result <- d.finish(call, s, work)
	}()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return ended(driver.Uncertain, ctx.Err())
	}
}

func (d *Driver) finish(call Call, s *script, work func(*volume) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	v := d.volumes[call.Handle]
	if v != nil {
		v.busy = false
	}
	if s.effect {
		if err := work(v); err != nil {
			return err
		}
	}
	return s.err
}

func ended(outcome driver.Outcome, err error) error {
	code := "Canceled"
	if errors.Is(err, context.DeadlineExceeded) {
		code = "DeadlineExceeded"
	}
	return &driver.Error{Outcome: outcome, Code: code, Message: err.Error(), Err: err}
}
