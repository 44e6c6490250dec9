/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package iscsi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/wait"
)

// Exit codes of iscsiadm.
const (
	exists      = 15
	noObjects   = 21
	loginFailed = 24
)

// replacementTimeout is how many seconds requests wait for a target that is lost. The default is two minutes.
const replacementTimeout = "10"

// iscsiadm runs the program on the record of a target, and accepts these exit codes.
func iscsiadm(ctx context.Context, target string, accepted []int, args ...string) error {
	cmd := exec.CommandContext(ctx, "iscsiadm", append([]string{"-m", "node", "-T", target}, args...)...)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err == nil || errors.As(err, &exit) && slices.Contains(accepted, exit.ExitCode()) {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	err = fmt.Errorf("running iscsiadm %s: %w: %s", strings.Join(args, " "), err, out)
	if exit != nil && exit.ExitCode() == loginFailed {
		return status.Error(codes.FailedPrecondition, err.Error())
	}
	return err
}

// login logs in to the target unless that has been done.
func login(ctx context.Context, portal, target string) error {
	for _, args := range [][]string{
		{"-p", portal, "-o", "new"},
		{"-o", "update", "-n", "node.session.timeo.replacement_timeout", "-v", replacementTimeout},
		{"-p", portal, "--login"},
	} {
		if err := iscsiadm(ctx, target, []int{exists}, args...); err != nil {
			return err
		}
	}
	return nil
}

// logout logs out of the target, and removes its record.
func logout(ctx context.Context, target string) error {
	for _, args := range [][]string{{"--logout"}, {"-o", "delete"}} {
		if err := iscsiadm(ctx, target, []int{noObjects}, args...); err != nil {
			return err
		}
	}
	return nil
}

// deviceOf returns the disk of the target, or "". The kernel has a session for each login.
func deviceOf(target string) (string, error) {
	sessions, err := filepath.Glob("/sys/class/iscsi_session/session*/targetname")
	if err != nil {
		return "", err
	}
	for _, file := range sessions {
		name, err := os.ReadFile(file)
		if err != nil || strings.TrimSpace(string(name)) != target {
			continue // another one, or it has just ended
		}
		// Below the session's device are its SCSI addresses. The disk has the logical unit number 1.
		disks, err := filepath.Glob(filepath.Join(filepath.Dir(file), "device", "target*", "*:1", "block", "*"))
		if err != nil {
			return "", err
		}
		if len(disks) > 0 {
			return "/dev/" + filepath.Base(disks[0]), nil
		}
	}
	return "", nil
}

// awaitDevice waits until the kernel has found the disk of the target.
func awaitDevice(ctx context.Context, target string) (string, error) {
	var disk string
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 10*time.Second, true,
		func(context.Context) (done bool, err error) {
			if disk, err = deviceOf(target); disk == "" || err != nil {
				return false, err
			}
			_, err = os.Stat(disk)
			return err == nil, nil
		})
	if err != nil {
		return "", fmt.Errorf("waiting for the disk of %s: %w", target, err)
	}
	return disk, nil
}
