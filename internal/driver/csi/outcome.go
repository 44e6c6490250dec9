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

// uncertain are the codes after which a driver may still run the call, or may have run it. The kubelet has the
// same list.
var uncertain = map[codes.Code]bool{
	codes.Canceled:          true, // the driver may continue without its caller
	codes.DeadlineExceeded:  true, // likewise
	codes.Unavailable:       true, // the driver may have died in the middle
	codes.ResourceExhausted: true, // some drivers return it for an operation that waits in their queue
	codes.Aborted:           true, // another operation for the volume is running
}

// meaning is what the final codes of one RPC mean. A code that is not listed is Transient. A wrong Transient costs some
// retries, but a wrong Invalid blocks the volume. Invalid is therefore only what the request itself determines.
type meaning map[codes.Code]driver.Outcome

var (
	// bringUp is for NodeStageVolume and NodePublishVolume.
	// FailedPrecondition (capabilities exceeded, or not staged) ends when other users release the volume.
	// So does AlreadyExists (staged with other capabilities). PermissionDenied and Unauthenticated end when a secret
	// is corrected. Internal, Unknown, DataLoss and OutOfRange do not depend on the request.
	bringUp = meaning{
		codes.InvalidArgument: driver.Invalid,
		codes.Unimplemented:   driver.Invalid,
		codes.NotFound:        driver.NotFound,
	}
	// takeDown is for NodeUnpublishVolume and NodeUnstageVolume. A release has no other arguments that could help,
	// and it must succeed at some time. Every error is therefore worth a retry.
	takeDown = meaning{
		codes.NotFound: driver.NotFound,
	}
	// expand is for NodeExpandVolume. InvalidArgument, OutOfRange and NotFound are infeasible in the kubelet's terms.
	// FailedPrecondition (in use, offline only) ends when the volume is not in use.
	expand = meaning{
		codes.InvalidArgument: driver.Invalid,
		codes.OutOfRange:      driver.Invalid,
		codes.Unimplemented:   driver.Invalid,
		codes.NotFound:        driver.NotFound,
	}
	// read is for NodeGetVolumeStats and the other calls that change nothing.
	read = meaning{
		codes.InvalidArgument: driver.Invalid,
		codes.Unimplemented:   driver.Invalid,
		codes.NotFound:        driver.NotFound,
	}
)

// refusals are the codes that CSI has for a call that the driver does not begin: the request or its secrets are wrong,
// or the volume is not as the call needs it. What fails later has others, such as Internal.
var refusals = map[codes.Code]bool{
	codes.InvalidArgument:    true,
	codes.NotFound:           true,
	codes.AlreadyExists:      true,
	codes.PermissionDenied:   true,
	codes.FailedPrecondition: true,
	codes.Unimplemented:      true,
	codes.Unauthenticated:    true,
}

// outcome derives an error's outcome from its code and from how far the call got.
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

// rpc describes one RPC for the classification of its errors.
type rpc struct {
	name     string
	meaning  meaning
	readOnly bool
	// bringsUp is true if the call formats and mounts.
	bringsUp bool
}

var (
	nodeStage     = rpc{name: "NodeStageVolume", meaning: bringUp, bringsUp: true}
	nodePublish   = rpc{name: "NodePublishVolume", meaning: bringUp, bringsUp: true}
	nodeUnpublish = rpc{name: "NodeUnpublishVolume", meaning: takeDown}
	nodeUnstage   = rpc{name: "NodeUnstageVolume", meaning: takeDown}
	nodeExpand    = rpc{name: "NodeExpandVolume", meaning: expand}
	nodeStats     = rpc{name: "NodeGetVolumeStats", meaning: read, readOnly: true}
	nodeHealth    = rpc{name: "NodeGetVolumeHealth", meaning: read, readOnly: true}
	nodeStorage   = rpc{name: "NodeGetStorageHealth", meaning: read, readOnly: true}
	nodeInfo      = rpc{name: "NodeGetInfo", meaning: read, readOnly: true}
	nodeCaps      = rpc{name: "NodeGetCapabilities", meaning: read, readOnly: true}
)

// typed converts a call's error to a *driver.Error without the secrets of its request.
func (r rpc) typed(driverName string, err error, p progress, secrets map[string]string) error {
	if err == nil {
		return nil
	}
	code, message := codes.Unknown, err.Error()
	if s, ok := status.FromError(err); ok {
		code, message = s.Code(), s.Message()
	} else {
		p.answered = false // not a gRPC error, so not from the driver
	}
	message = redact(message, secrets)
	name := code.String()
	if cause := precise(message); cause != "" && r.bringsUp {
		name = cause
	}
	return &driver.Error{
		Outcome:  outcome(code, p, r.meaning, r.readOnly),
		Code:     name,
		Message:  fmt.Sprintf("%s of driver %s: %s", r.name, driverName, message),
		NoEffect: !p.sent || p.answered && refusals[code],
		Err:      cause(code, message),
	}
}

// cause contains no secrets either, because callers may unwrap and print it. The end of a context stays recognisable.
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

// redact removes secrets from a message that a driver may have built from its request. It replaces longer secrets
// first, because one secret may begin with another. Drivers omit the line end that many stored secrets have.
func redact(message string, secrets map[string]string) string {
	values := slices.SortedFunc(maps.Values(secrets), func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	for _, secret := range values {
		if secret = strings.TrimSpace(secret); secret != "" {
			message = strings.ReplaceAll(message, secret, "***")
		}
	}
	return message
}
