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

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

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
func (a *Environment) call(ctx context.Context, v *volume, f facts, operation, target string, do func(context.Context) error) error {
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
	a.Step("before " + operation)
	if !time.Now().Before(until) {
		v.record.finish() // likewise
		return problemf(volumesv1alpha1.ReasonRecordFailed, "writing the record of the volume took longer than %s, so nothing is done", a.DriverTimeout)
	}
	err := a.runCall(ctx, v, f, operation, until, do)
	a.Step("after " + operation)
	if driver.IsUncertain(err) {
		v.record.abandon()
	} else {
		v.record.finish()
	}
	return err
}

// newCall is a call that begins now at the latest.
func (a *Environment) newCall(operation, target string) Call {
	now, within := a.Now(), a.DriverTimeout+callGrace
	return Call{
		Operation: operation, Target: target, BootID: now.bootID, Deadline: a.Clock.Now().Add(within), Uptime: now.uptime + within,
		Mounts: operation == "stage" || operation == "publish",
	}
}

// mayCall asks the protocol whether the volume may be brought further.
func (a *Environment) mayCall(v *volume, operation string) error {
	if operation == "unpublish" || operation == "unstage" {
		return nil
	}
	node := handshake.NodeOf(a.State.acknowledged(), v.name)
	if g := (handshake.Protocol{}).MayStage(node, v.record.AttachmentUID); g != handshake.GuardNone {
		return fmt.Errorf("calling the driver: refused by %s: %w", g, errAgain)
	}
	return nil
}

func (a *Environment) runCall(ctx context.Context, v *volume, f facts, operation string, until time.Time, do func(context.Context) error) error {
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
			if err := a.ReportIntents(ctx, v, f); err != nil {
				a.Log.Info("slow call not reported", "volume", v.name, "error", err.Error())
			}
		case <-over.C():
			v.hangs(finished, operation)
			go func() {
				<-finished
				a.Requeue(v.name)
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

// request is what every call says of the volume.
func (a *Environment) request(f facts) driver.Volume {
	e := f.entry
	vol := driver.Volume{
		Handle: e.VolumeHandle, PersistentVolume: e.PersistentVolumeName, Mode: f.record.Mode, FSType: e.FSType,
		Attributes: e.VolumeAttributes, PublishContext: e.PublishContext,
	}
	if len(e.AccessModes) > 0 {
		vol.AccessMode = e.AccessModes[0]
	}
	return vol
}

// secrets reads the Secret that the entry names, live: agents keep none in memory.
func (a *Environment) secrets(ctx context.Context, ref *corev1.SecretReference) (map[string]string, error) {
	if ref == nil {
		return nil, nil
	}
	var secret corev1.Secret
	key := types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}
	if err := a.Live.Get(ctx, key, &secret); err != nil {
		return nil, &problem{reason: volumesv1alpha1.ReasonSecretNotReadable, message: fmt.Sprintf("reading secret %s", key), err: err}
	}
	values := make(map[string]string, len(secret.Data))
	for k, value := range secret.Data {
		values[k] = string(value)
	}
	return values, nil
}

// nothingAt says whether the mount table agrees with a driver that says that nothing was done.
func (a *Environment) nothingAt(path string) bool {
	table, err := a.Mounts.Table()
	return err == nil && len(table.All(path)) == 0
}

// stillMounting refuses to call something undone that an earlier call of unknown end may yet do: it is undone
// once more when that call's deadline has passed. What counts is when the undoing began.
func (a *Environment) stillMounting(v *volume, f facts) error {
	if !v.record.mayMount(f.now) {
		return nil
	}
	return inFlight(v.record.Unfinished, a.Clock.Now().Add(v.record.Unfinished.remaining(f.now)))
}

func inFlight(c *Call, until time.Time) *problem {
	return &problem{reason: volumesv1alpha1.ReasonCallInFlight, until: until,
		message: fmt.Sprintf("an earlier %s call may still run until %s", c.Operation, c.Deadline.UTC().Format(time.TimeOnly))}
}
