/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package operation

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
	"github.com/hawser-io/hawser/internal/agent/failure"
	"github.com/hawser-io/hawser/internal/agent/plan"
	"github.com/hawser-io/hawser/internal/agent/record"
	"github.com/hawser-io/hawser/internal/driver"
	"github.com/hawser-io/hawser/internal/handshake"
	"github.com/hawser-io/hawser/internal/metrics"
)

const (
	// callGrace is how long a call may take to notice that its deadline has passed.
	callGrace = time.Second
	// slowCall is after how long the intents' status reports that a call is going on.
	slowCall = 3 * time.Second
)

// Call makes one driver call. It is in the record on disk before it is made; its outcome is in the record in memory
// afterwards. A call that ignores its deadline goes on in a goroutine of its own, its outcome is uncertain, and
// the volume rests until it returns.
func (env *Environment) Call(ctx context.Context, v *Volume, f plan.Facts, operation, target string,
	do func(context.Context) error) error {
	if err := env.mayCall(v, operation); err != nil {
		return err
	}
	// The context ends by the same clock as the record's deadline, which is read after this: the call cannot outlive
	// the record's.
	until := time.Now().Add(env.DriverTimeout)
	v.Record.Begin(env.NewCall(operation, target))
	if err := env.Persist(v); err != nil {
		v.Record.Finish() // it was not made
		return err
	}
	env.Step("before " + operation)
	if !time.Now().Before(until) {
		v.Record.Finish() // likewise
		return failure.Problemf(volumesv1alpha1.ReasonRecordFailed,
			"writing the record of the volume took longer than %s, so nothing is done", env.DriverTimeout)
	}
	err := env.runCall(ctx, v, f, operation, until, do)
	env.Step("after " + operation)
	if driver.IsUncertain(err) {
		v.Record.Abandon()
	} else {
		v.Record.Finish()
	}
	return err
}

// NewCall is a call that begins now at the latest.
func (env *Environment) NewCall(operation, target string) record.Call {
	now, within := env.Now(), env.DriverTimeout+callGrace
	return record.Call{
		Operation: operation, Target: target, BootID: now.BootID, Deadline: env.Clock.Now().Add(within),
		Uptime: now.Uptime + within,
		Mounts: operation == "stage" || operation == "publish",
	}
}

// mayCall asks the protocol whether the volume may be brought further.
func (env *Environment) mayCall(v *Volume, operation string) error {
	if operation == "unpublish" || operation == "unstage" {
		return nil
	}
	node := handshake.NodeOf(env.State.Acknowledged(), v.Name)
	if g := (handshake.Protocol{}).MayStage(node, v.Record.AttachmentUID); g != handshake.GuardNone {
		return fmt.Errorf("calling the driver: refused by %s: %w", g, failure.ErrChanged)
	}
	return nil
}

func (env *Environment) runCall(ctx context.Context, v *Volume, f plan.Facts, operation string, until time.Time,
	do func(context.Context) error) error {
	// The call does not end with the agent's context: a driver that is interrupted leaves doubt behind.
	callCtx, cancel := context.WithDeadline(env.Lifetime, until)
	done := make(chan error, 1)
	finished := make(chan struct{})
	started := env.Clock.Now()
	call := env.Calls.Begin(v.Record.Driver, v.Name)
	go func() {
		defer close(finished)
		defer cancel()
		err := recoverPanic(callCtx, do)
		call.End(answerOf(err))
		done <- err
	}()
	slow := env.Clock.NewTimer(slowCall)
	defer slow.Stop()
	over := env.Clock.NewTimer(env.DriverTimeout + callGrace)
	defer over.Stop()
	for {
		select {
		case err := <-done:
			v.slow = ""
			return err
		case <-slow.C():
			v.slow = fmt.Sprintf("the driver's %s call is going on since %s", operation,
				started.UTC().Format("15:04:05"))
			if err := env.ReportIntents(ctx, v, f); err != nil {
				env.Log.Info("slow call not reported", "volume", v.Name, "error", err.Error())
			}
		case <-over.C():
			call.Hangs()
			v.setHanging(finished, operation)
			go func() {
				<-finished
				env.Requeue(v.Name)
			}()
			v.slow = ""
			return &driver.Error{Outcome: driver.Uncertain, Code: "DeadlineExceeded",
				Message: fmt.Sprintf("the driver did not answer within %s and ignores the deadline", env.DriverTimeout)}
		case <-env.Lifetime.Done():
			return errors.Join(context.Cause(env.Lifetime), ErrStopped)
		}
	}
}

// answerOf is what the end of a call shows of the driver.
func answerOf(err error) metrics.Answer {
	if err == nil {
		return metrics.Answered
	}
	switch driver.CodeOf(err) {
	case "DeadlineExceeded":
		return metrics.Unanswered
	case "Unavailable", "Canceled", "Aborted":
		return metrics.Undecided
	}
	return metrics.Answered
}

// ErrStopped: the process ends before the call did; the record knows of the call.
var ErrStopped = errors.New("the agent stops")

// recoverPanic turns a panic of a driver into an uncertain outcome.
func recoverPanic(ctx context.Context, do func(context.Context) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &driver.Error{Outcome: driver.Uncertain, Code: "Internal",
				Message: fmt.Sprintf("panic in the driver: %v", p), Err: fmt.Errorf("%s", debug.Stack())}
		}
	}()
	return do(ctx)
}

// request is what every call says of the volume.
func (env *Environment) request(f plan.Facts) driver.Volume {
	vol := f.VolumeSource().Request()
	vol.Mode = f.Record.Mode
	return vol
}

// secrets reads the Secret that the entry names, live: agents keep none in memory.
func (env *Environment) secrets(ctx context.Context, ref *corev1.SecretReference) (map[string]string, error) {
	if ref == nil {
		return nil, nil
	}
	var secret corev1.Secret
	key := types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}
	if err := env.Secrets.Get(ctx, key, &secret); err != nil {
		return nil, &failure.Problem{Reason: volumesv1alpha1.ReasonSecretNotReadable,
			Message: fmt.Sprintf("reading secret %s", key), Err: err}
	}
	values := make(map[string]string, len(secret.Data))
	for k, value := range secret.Data {
		values[k] = string(value)
	}
	return values, nil
}

// nothingAt reports whether the mount table shows nothing at path, as after a driver's refusal it should.
func (env *Environment) nothingAt(path string) bool {
	table, err := env.Mounts.Table()
	return err == nil && len(table.All(path)) == 0
}

// callMayMount refuses to call something undone that an earlier call of unknown end may yet do: it is undone
// once more when that call's deadline has passed. What counts is when the undoing began.
func (env *Environment) callMayMount(v *Volume, f plan.Facts) error {
	if !v.Record.MayMount(f.Now) {
		return nil
	}
	return inFlight(v.Record.Unfinished, env.Clock.Now().Add(v.Record.Unfinished.Remaining(f.Now)))
}

func inFlight(c *record.Call, until time.Time) *failure.Problem {
	return &failure.Problem{Reason: volumesv1alpha1.ReasonCallInFlight, RetryAt: until,
		Message: fmt.Sprintf("an earlier %s call may still run until %s", c.Operation,
			c.Deadline.UTC().Format(time.TimeOnly))}
}
