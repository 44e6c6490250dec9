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

// login logs in to the target at each portal unless that has been done, and returns at how many it is logged in. One
// that cannot be reached is no error as long as there is another.
func login(ctx context.Context, portals []string, target string) (sessions int, err error) {
	var failed error
	for _, portal := range portals {
		if err := loginAt(ctx, portal, target); err != nil {
			failed = errors.Join(failed, err)
		} else {
			sessions++
		}
	}
	if sessions == 0 {
		return 0, failed
	}
	return sessions, nil
}

func loginAt(ctx context.Context, portal, target string) error {
	for _, args := range [][]string{
		{"-o", "new"},
		{"-o", "update", "-n", "node.session.timeo.replacement_timeout", "-v", replacementTimeout},
		{"--login"},
	} {
		if err := iscsiadm(ctx, target, []int{exists}, append([]string{"-p", portal}, args...)...); err != nil {
			return err
		}
	}
	return nil
}

// logout logs out of the target, and removes its records.
func logout(ctx context.Context, target string) error {
	for _, args := range [][]string{{"--logout"}, {"-o", "delete"}} {
		if err := iscsiadm(ctx, target, []int{noObjects}, args...); err != nil {
			return err
		}
	}
	return nil
}

// disksOf returns the names of the target's disks, one of each session. The kernel has a session for each login.
func disksOf(target string) ([]string, error) {
	sessions, err := filepath.Glob("/sys/class/iscsi_session/session*/targetname")
	if err != nil {
		return nil, err
	}
	var disks []string
	for _, file := range sessions {
		name, err := os.ReadFile(file)
		if err != nil || strings.TrimSpace(string(name)) != target {
			continue // another one, or it has just ended
		}
		// Below the session's device are its SCSI addresses. The disk has the logical unit number 1.
		found, err := filepath.Glob(filepath.Join(filepath.Dir(file), "device", "target*", "*:1", "block", "*"))
		if err != nil {
			return nil, err
		}
		for _, disk := range found {
			disks = append(disks, filepath.Base(disk))
		}
	}
	return disks, nil
}

// deviceOf returns what the volume of the target is mounted from: the device that multipathd has made of its disks, or
// its disk, or "".
func deviceOf(target string) (string, error) {
	disks, err := disksOf(target)
	if err != nil || len(disks) == 0 {
		return "", err
	}
	if mapped, _, err := mapOf(disks[0]); mapped != "" || err != nil {
		return mapped, err
	}
	return "/dev/" + disks[0], nil
}

// awaitDevice waits until the kernel has found as many disks of the target as there are sessions and, where they are
// paths, multipathd has made one device of all.
func awaitDevice(ctx context.Context, target string, sessions int, paths bool) (string, error) {
	var device string
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 10*time.Second, true,
		func(context.Context) (done bool, err error) {
			disks, err := disksOf(target)
			if len(disks) < sessions || err != nil {
				return false, err
			}
			device = "/dev/" + disks[0]
			if paths {
				var of int
				if device, of, err = mapOf(disks[0]); of < sessions || err != nil {
					return false, err
				}
			}
			_, err = os.Stat(device)
			return err == nil, nil
		})
	if err != nil {
		return "", fmt.Errorf("waiting for the disk of %s: %w", target, err)
	}
	return device, nil
}
