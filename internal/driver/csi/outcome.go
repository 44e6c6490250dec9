/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package csi

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hawser-io/hawser/internal/driver"
)

// uncertain are the codes after which a driver may still be at work, or may have been: the same as the kubelet's.
var uncertain = map[codes.Code]bool{
	codes.Canceled:          true, // the driver may go on without its caller
	codes.DeadlineExceeded:  true, // likewise
	codes.Unavailable:       true, // the driver may have died in the middle
	codes.ResourceExhausted: true, // some drivers say so of an operation that waits in their queue
	codes.Aborted:           true, // an operation for the volume is going on already
}

// meaning is what the final codes of one RPC mean; a code that is not listed is Transient. Being wrong about
// Transient costs a retry now and then, being wrong about Invalid leaves a volume
// stuck, so Invalid is only what the request itself determines.
type meaning map[codes.Code]driver.Outcome

var (
	// bringUp: NodeStageVolume and NodePublishVolume.
	// FailedPrecondition (capabilities exceeded, or not staged) and AlreadyExists (staged by somebody else with
	// other capabilities) pass when others let go of the volume. PermissionDenied and Unauthenticated pass
	// when a secret is mended. Internal, Unknown, DataLoss and OutOfRange say nothing about the request.
	bringUp = meaning{
		codes.InvalidArgument: driver.Invalid,
		codes.Unimplemented:   driver.Invalid,
		codes.NotFound:        driver.NotFound,
	}
	// takeDown: NodeUnpublishVolume and NodeUnstageVolume. A release has no other arguments to be asked with and
	// must come to its end one day, so there is nothing that is not worth another try.
	takeDown = meaning{
		codes.NotFound: driver.NotFound,
	}
	// expand: NodeExpandVolume. InvalidArgument, OutOfRange and NotFound are infeasible in the kubelet's terms.
	// FailedPrecondition (in use, offline only) passes with the use.
	expand = meaning{
		codes.InvalidArgument: driver.Invalid,
		codes.OutOfRange:      driver.Invalid,
		codes.Unimplemented:   driver.Invalid,
		codes.NotFound:        driver.NotFound,
	}
	// look: NodeGetVolumeStats and the other calls that change nothing.
	look = meaning{
		codes.InvalidArgument: driver.Invalid,
		codes.Unimplemented:   driver.Invalid,
		codes.NotFound:        driver.NotFound,
	}
)

// outcome decides what an error of an RPC means, from the code and how far the call came.
func outcome(code codes.Code, p progress, m meaning, readOnly bool) driver.Outcome {
	switch final, listed := m[code]; {
	case !p.sent || readOnly && (!p.answered || uncertain[code]):
		return driver.Transient
	case !p.answered || uncertain[code]:
		return driver.Uncertain
	case listed:
		return final
	default:
		return driver.Transient
	}
}

// rpc says of which RPC an error is.
type rpc struct {
	name     string
	meaning  meaning
	readOnly bool
	// bringsUp: it formats and mounts.
	bringsUp bool
}

var (
	nodeStage     = rpc{name: "NodeStageVolume", meaning: bringUp, bringsUp: true}
	nodePublish   = rpc{name: "NodePublishVolume", meaning: bringUp, bringsUp: true}
	nodeUnpublish = rpc{name: "NodeUnpublishVolume", meaning: takeDown}
	nodeUnstage   = rpc{name: "NodeUnstageVolume", meaning: takeDown}
	nodeExpand    = rpc{name: "NodeExpandVolume", meaning: expand}
	nodeStats     = rpc{name: "NodeGetVolumeStats", meaning: look, readOnly: true}
	nodeHealth    = rpc{name: "NodeGetVolumeHealth", meaning: look, readOnly: true}
	nodeInfo      = rpc{name: "NodeGetInfo", meaning: look, readOnly: true}
	nodeCaps      = rpc{name: "NodeGetCapabilities", meaning: look, readOnly: true}
)

// typed turns what a call returned into a *driver.Error without the secrets of its request.
func (r rpc) typed(driverName string, err error, p progress, secrets map[string]string) error {
	if err == nil {
		return nil
	}
	code, message := codes.Unknown, err.Error()
	if s, ok := status.FromError(err); ok {
		code, message = s.Code(), s.Message()
	} else {
		p.answered = false // not gRPC: nobody's word
	}
	message = redact(message, secrets)
	name := code.String()
	if cause := precise(message); cause != "" && r.bringsUp {
		name = cause
	}
	return &driver.Error{
		Outcome: outcome(code, p, r.meaning, r.readOnly),
		Code:    name,
		Message: fmt.Sprintf("%s of driver %s: %s", r.name, driverName, message),
		Err:     cause(code, message),
	}
}

// cause is free of secrets too, since it can be unwrapped and printed; a context's end stays recognisable.
func cause(code codes.Code, message string) error {
	switch code {
	case codes.DeadlineExceeded:
		return context.DeadlineExceeded
	case codes.Canceled:
		return context.Canceled
	default:
		return status.Error(code, message)
	}
}

// redact takes secrets out of a message that a driver may have built from its request. Longer ones come first, because
// one may begin with another; drivers cut off the line's end with which many are stored.
func redact(message string, secrets map[string]string) string {
	values := slices.SortedFunc(maps.Values(secrets), func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	for _, secret := range values {
		if secret = strings.TrimSpace(secret); secret != "" {
			message = strings.ReplaceAll(message, secret, "***")
		}
	}
	return message
}
