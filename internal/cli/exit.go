/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package cli has the commands of `kubectl hawser`. A command reads, has another package judge, and prints: the report
// to stdout, progress and errors to stderr. Exit codes are 0 fine, 1 findings, 2 error and 124 timeout, with every
// format of the output.
package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/hawser-io/hawser/internal/explain/facts"
)

// Exit codes.
const (
	Fine     = 0
	Findings = 1
	Failed   = 2
	TimedOut = 124
)

// findingsError ends a command that has printed findings.
type findingsError struct{}

func (findingsError) Error() string { return "there are findings" }

// timeoutError ends a command that took longer than --timeout.
type timeoutError struct{ after time.Duration }

func (e timeoutError) Error() string {
	return fmt.Sprintf("the API server did not answer everything within %s; --timeout allows more", e.after)
}

// watchedError ends a command with --watch after --timeout.
type watchedError struct{ after time.Duration }

func (e watchedError) Error() string {
	return fmt.Sprintf("watched for %s, as --timeout asks", e.after)
}

// code is the exit code of a command's error.
func code(err error) int {
	var findings findingsError
	var timeout timeoutError
	var watched watchedError
	var waited waitedError
	switch {
	case err == nil:
		return Fine
	case errors.As(err, &findings):
		return Findings
	case errors.As(err, &timeout), errors.As(err, &watched), errors.As(err, &waited):
		return TimedOut
	default:
		return Failed
	}
}

// sentence explains an error to a user.
func sentence(err error) string {
	var subject *facts.ErrSubject
	if errors.As(err, &subject) {
		return subjectSentence(subject)
	}
	var network *net.OpError
	switch {
	case apierrors.IsUnauthorized(err):
		return "the API server does not accept these credentials: log in again"
	case apierrors.IsForbidden(err):
		return "you may not do that: " + err.Error()
	case errors.As(err, &network):
		return "the API server does not answer: " + err.Error()
	default:
		return err.Error()
	}
}

func subjectSentence(e *facts.ErrSubject) string {
	where := ""
	if e.Ref.Namespace != "" {
		where = " in namespace " + e.Ref.Namespace
	}
	switch what := e.Ref.Kind + " " + e.Ref.Name + where; {
	case facts.Absent(e.Err):
		return "there is no " + what
	case facts.NoKind(e.Err):
		return "Hawser is not installed in this cluster: the API server does not serve " + e.Ref.Kind
	case facts.Denied(e.Err):
		return "you may not read " + what + ": " + e.Err.Error()
	default:
		return "reading " + what + ": " + e.Err.Error()
	}
}

// expired turns the end of the command's own time into its error.
func (o *options) expired(ctx context.Context, err error) error {
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return timeoutError{o.timeout}
	}
	return err
}
