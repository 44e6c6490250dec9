/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package csi

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/hawser-io/hawser/internal/driver"
)

// operations call each RPC once.
var operations = map[string]func(context.Context, *Driver) error{
	"Stage": func(ctx context.Context, d *Driver) error {
		return d.Stage(ctx, driver.StageRequest{Secrets: map[string]string{"password": "hunter2", "empty": ""}})
	},
	"Publish": func(ctx context.Context, d *Driver) error {
		return d.Publish(ctx, driver.PublishRequest{Secrets: map[string]string{"password": "hunter2"}})
	},
	"Unpublish": func(ctx context.Context, d *Driver) error { return d.Unpublish(ctx, driver.UnpublishRequest{}) },
	"Unstage":   func(ctx context.Context, d *Driver) error { return d.Unstage(ctx, driver.UnstageRequest{}) },
	"Expand": func(ctx context.Context, d *Driver) error {
		_,
			err := d.Expand(ctx,
			driver.ExpandRequest{Capacity: resource.MustParse("1Gi"), Secrets: map[string]string{"password": "hunter2"}})
		return err
	},
	"Stats": func(ctx context.Context, d *Driver) error {
		_, err := d.Stats(ctx, driver.StatsRequest{})
		return err
	},
}

// wanted is what each code means for each operation. A code that is not listed is Transient.
var wanted = map[string]map[driver.Outcome][]codes.Code{
	"Stage": {driver.Invalid: {codes.InvalidArgument, codes.Unimplemented}, driver.NotFound: {codes.NotFound},
		driver.Uncertain: uncertainCodes},
	"Publish": {driver.Invalid: {codes.InvalidArgument, codes.Unimplemented}, driver.NotFound: {codes.NotFound},
		driver.Uncertain: uncertainCodes},
	"Unpublish": {driver.NotFound: {codes.NotFound}, driver.Uncertain: uncertainCodes},
	"Unstage":   {driver.NotFound: {codes.NotFound}, driver.Uncertain: uncertainCodes},
	"Expand": {
		driver.Invalid:  {codes.InvalidArgument, codes.OutOfRange, codes.Unimplemented},
		driver.NotFound: {codes.NotFound}, driver.Uncertain: uncertainCodes,
	},
	"Stats": {driver.Invalid: {codes.InvalidArgument, codes.Unimplemented}, driver.NotFound: {codes.NotFound}},
}

var uncertainCodes = []codes.Code{codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.ResourceExhausted,
	codes.Aborted}

// refusedCodes are for calls that the driver did not begin.
var refusedCodes = []codes.Code{codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.PermissionDenied,
	codes.FailedPrecondition, codes.Unimplemented, codes.Unauthenticated}

func wantedOutcome(operation string, code codes.Code) driver.Outcome {
	for outcome, listed := range wanted[operation] {
		if slices.Contains(listed, code) {
			return outcome
		}
	}
	return driver.Transient
}

func TestEachCodeOfEachCallHasItsOutcome(t *testing.T) {
	s := &scripted{capabilities: allCapabilities()}
	d := connect(t, s)
	for name, operate := range operations {
		for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
			s.script(func(context.Context, proto.Message) error { return status.Error(code, "because") })
			err := operate(t.Context(), d)
			if got, want := driver.OutcomeOf(err), wantedOutcome(name, code); got != want {
				t.Errorf("outcome of %s, answered %s: %s, want %s", name, code, got, want)
			}
			if bringsUp := name == "Stage" || name == "Publish"; bringsUp &&
				driver.HadNoEffect(err) != slices.Contains(refusedCodes, code) {
				t.Errorf("%s answered %s: nothing is left behind: %t, want %t", name, code, driver.HadNoEffect(err),
					slices.Contains(refusedCodes, code))
			}
			if driver.CodeOf(err) != code.String() || !strings.Contains(err.Error(), "because") {
				t.Errorf("%s answered %s: error %v, want this code and the driver's message", name, code, err)
			}
		}
		s.script(nil)
		if err := operate(t.Context(), d); err != nil {
			t.Errorf("%s answered OK: error %v, want none", name, err)
		}
	}
}

func TestACallThatDidNotReachTheDriverIsTransient(t *testing.T) {
	for name, operate := range operations {
		t.Run(name, func(t *testing.T) {
			s := &scripted{capabilities: allCapabilities()}
			socket := filepath.Join(shortDir(t), "csi.sock")
			stop := s.serve(t, socket)
			d, err := Connect(t.Context(), driverName, socket, nil)
			if err != nil {
				t.Fatal(err)
			}
			stop()
			if err := operate(t.Context(), d); driver.OutcomeOf(err) != driver.Transient ||
				driver.CodeOf(err) != "Unavailable" || !driver.HadNoEffect(err) {
				t.Errorf("%s while the driver is down: outcome %s, error %v; want Transient, Unavailable, and no effect", name,
					driver.OutcomeOf(err), err)
			}
			mute(t, socket)
			ctx, cancel := context.WithTimeout(t.Context(), waitTimeout/200)
			defer cancel()
			if err := operate(ctx, d); driver.OutcomeOf(err) != driver.Transient || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s while the driver accepts no connection: outcome %s, error %v; want Transient past the deadline", name,
					driver.OutcomeOf(err), err)
			}
		})
	}
}

// mute listens at the socket and never answers.
func mute(t *testing.T, socket string) {
	t.Helper()
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := listener.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestADriverIsReachedAtOnceAfterItsRestart(t *testing.T) {
	s := &scripted{capabilities: allCapabilities()}
	socket := filepath.Join(shortDir(t), "csi.sock")
	stop := s.serve(t, socket)
	d, err := Connect(t.Context(), driverName, socket, nil)
	if err != nil {
		t.Fatal(err)
	}
	stop()
	for range 5 { // failures must not make the client hesitate
		if err := operations["Stage"](t.Context(), d); !errors.As(err, new(*driver.Error)) {
			t.Fatalf("stage while the driver is down: error %v, want a *driver.Error", err)
		}
	}
	s.serve(t, socket)
	start := time.Now()
	if err := operations["Stage"](t.Context(), d); err != nil {
		t.Error(err)
	}
	if took := time.Since(start); took > time.Second {
		t.Errorf("Stage after the driver's restart took %s, want at most 1s", took)
	}
}

func TestADriverThatDiesDuringTheCallLeavesItUncertain(t *testing.T) {
	for name, operate := range operations {
		s := &scripted{capabilities: allCapabilities()}
		socket := filepath.Join(shortDir(t), "csi.sock")
		stop := s.serve(t, socket)
		d, err := Connect(t.Context(), driverName, socket, nil)
		if err != nil {
			t.Fatal(err)
		}
		s.script(func(ctx context.Context, _ proto.Message) error {
			go stop()
			<-ctx.Done() // the connection broke
			return nil
		})
		want := driver.Uncertain
		if name == "Stats" {
			want = driver.Transient // it changes nothing
		}
		if err := operate(t.Context(), d); driver.OutcomeOf(err) != want || driver.HadNoEffect(err) {
			t.Errorf("%s while the driver dies: outcome %s, error %v; want %s that may have had an effect", name,
				driver.OutcomeOf(err), err, want)
		}
	}
}

func TestACallWhoseCallerGaveUpIsUncertain(t *testing.T) {
	s := &scripted{capabilities: allCapabilities()}
	d := connect(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	s.script(func(ctx context.Context, _ proto.Message) error {
		cancel()
		<-ctx.Done()
		return status.Error(codes.Internal, "after the caller gave up")
	})
	err := operations["Stage"](ctx, d)
	if !driver.IsUncertain(err) || !errors.Is(err, context.Canceled) {
		t.Errorf("Stage whose caller gave up: error %v, want Uncertain, canceled", err)
	}
}

// gRPC generates a code in this process when the stream breaks. Internal is final only if the driver sent it.
func TestACodeThatGRPCGeneratedIsUncertain(t *testing.T) {
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		if got := outcome(code, progress{sent: true}, bringUp, false); got != driver.Uncertain {
			t.Errorf("outcome of code %s that gRPC generated: %s, want %s", code, got, driver.Uncertain)
		}
	}
	err := nodeStage.typed(driverName, errors.New("not gRPC"), progress{sent: true, answered: true}, nil)
	if !driver.IsUncertain(err) {
		t.Errorf("outcome of an error that is not gRPC's: %v, want Uncertain", err)
	}
}

func TestSecretsThatADriverRepeatsAreRedacted(t *testing.T) {
	s := &scripted{capabilities: allCapabilities()}
	d := connect(t, s)
	s.script(func(context.Context, proto.Message) error {
		return status.Error(codes.Internal, "mount -o password=hunter2 failed")
	})
	for _, name := range []string{"Stage", "Publish", "Expand"} {
		for err := operations[name](t.Context(), d); err != nil; err = errors.Unwrap(err) {
			if strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "password=*** failed") {
				t.Errorf("error of %s: %q, want password=*** and no secret in each error it wraps", name, err)
			}
		}
	}
}

func TestASecretThatBeginsWithAnotherIsRedactedCompletely(t *testing.T) {
	secrets := map[string]string{"user": "admin", "password": "admin-hush", "file": "line\n"}
	for range 50 { // maps have no order
		if got := redact("login admin:admin-hush with line failed", secrets); got != "login ***:*** with *** failed" {
			t.Fatalf("redacted message: %q, want both secrets and the line replaced by ***", got)
		}
	}
}
