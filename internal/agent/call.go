/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/driver"
	"github.com/hawser-io/hawser/internal/handshake"
)

const (
	// callGrace is how long a call may take to notice that its deadline has passed.
	callGrace = time.Second
	// slowCall is after how long users are told that a call is going on.
	slowCall = 3 * time.Second
)

// call makes one driver call. It is in the record on disk before it is made; its outcome is in the record in memory
// afterwards. A call that ignores its deadline goes on in a goroutine of its own, its outcome is uncertain, and
// the volume rests until it returns.
func (a *Agent) call(ctx context.Context, v *volume, f facts, operation, target string, do func(context.Context) error) error {
	if err := a.mayCall(v, operation); err != nil {
		return err
	}
	// The context ends by the same clock as the record's deadline, which is read after this: the call cannot outlive the record's.
	until := time.Now().Add(a.DriverTimeout)
	v.record.begin(a.newCall(operation, target))
	if err := a.save(v); err != nil {
		v.record.finish() // it was not made
		return err
	}
	a.step("before " + operation)
	if !time.Now().Before(until) {
		v.record.finish() // likewise
		return problemf(volumesv1alpha1.ReasonRecordFailed, "writing the record of the volume took longer than %s, so nothing is done", a.DriverTimeout)
	}
	err := a.runCall(ctx, v, f, operation, until, do)
	a.step("after " + operation)
	if driver.IsUncertain(err) {
		v.record.abandon()
	} else {
		v.record.finish()
	}
	return err
}

// newCall is a call that begins now at the latest.
func (a *Agent) newCall(operation, target string) Call {
	now, within := a.now(), a.DriverTimeout+callGrace
	return Call{
		Operation: operation, Target: target, BootID: now.bootID, Deadline: a.Clock.Now().Add(within), Uptime: now.uptime + within,
		Mounts: operation == "stage" || operation == "publish",
	}
}

// mayCall asks the protocol whether the volume may be brought further.
func (a *Agent) mayCall(v *volume, operation string) error {
	if operation == "unpublish" || operation == "unstage" {
		return nil
	}
	node := handshake.NodeOf(a.state.acknowledged(), v.name)
	if g := (handshake.Protocol{}).MayStage(node, v.record.AttachmentUID); g != handshake.GuardNone {
		return fmt.Errorf("calling the driver: refused by %s: %w", g, errAgain)
	}
	return nil
}

func (a *Agent) runCall(ctx context.Context, v *volume, f facts, operation string, until time.Time, do func(context.Context) error) error {
	// The call does not end with the agent's context: a driver that is interrupted leaves doubt behind.
	callCtx, cancel := context.WithDeadline(a.lifetime, until)
	done := make(chan error, 1)
	finished := make(chan struct{})
	started := a.Clock.Now()
	go func() {
		defer close(finished)
		defer cancel()
		done <- guarded(callCtx, do)
	}()
	slow := a.Clock.NewTimer(slowCall)
	defer slow.Stop()
	over := a.Clock.NewTimer(a.DriverTimeout + callGrace)
	defer over.Stop()
	for {
		select {
		case err := <-done:
			v.slow = ""
			return err
		case <-slow.C():
			v.slow = fmt.Sprintf("the driver's %s call is going on since %s", operation, started.UTC().Format("15:04:05"))
			if err := a.reportIntents(ctx, v, f); err != nil {
				a.Log.Info("slow call not reported", "volume", v.name, "error", err.Error())
			}
		case <-over.C():
			v.hangs(finished, operation)
			go func() {
				<-finished
				a.queue.volume(v.name)
			}()
			v.slow = ""
			return &driver.Error{Outcome: driver.Uncertain, Code: "DeadlineExceeded",
				Message: fmt.Sprintf("the driver did not answer within %s and ignores the deadline", a.DriverTimeout)}
		case <-a.lifetime.Done():
			return errors.Join(context.Cause(a.lifetime), errStopped)
		}
	}
}

// errStopped: the process ends before the call did; the record knows of the call.
var errStopped = errors.New("the agent stops")

// guarded turns a panic of a driver into an uncertain outcome.
func guarded(ctx context.Context, do func(context.Context) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &driver.Error{Outcome: driver.Uncertain, Code: "Internal",
				Message: fmt.Sprintf("panic in the driver: %v", p), Err: fmt.Errorf("%s", debug.Stack())}
		}
	}()
	return do(ctx)
}

// save brings the record to the disk.
func (a *Agent) save(v *volume) error {
	a.step("before record")
	if err := a.keep(v); err != nil {
		return &problem{reason: volumesv1alpha1.ReasonRecordFailed, message: "the record of the volume cannot be written, so nothing is done", err: err}
	}
	a.step("after record")
	return nil
}

func (a *Agent) keep(v *volume) error {
	err := a.store.save(v.record)
	if err == nil {
		v.unsaved = false
	}
	return err
}

// driverOf returns the volume's driver.
func (a *Agent) driverOf(v *volume) (driver.Driver, error) {
	d, ok := a.Registry.Get(v.record.Driver)
	if !ok {
		return nil, &problem{reason: volumesv1alpha1.ReasonDriverNotFound, waits: true,
			message: fmt.Sprintf("driver %s is not registered on node %s", v.record.Driver, a.NodeName)}
	}
	return d, nil
}
