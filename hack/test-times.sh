#!/usr/bin/env bash
# Copyright 2026 The Hawser Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Runs a test program for `go test -exec`. It appends a line to the file $HAWSER_TEST_TIMES: seconds of wall time,
# seconds of processor time in user mode and in the kernel, with those of the programs that the test ran, and the
# directory of the package.
#
#   HAWSER_TEST_TIMES=/tmp/times make test
TIMEFORMAT='%R %U %S'
exec 3>&2 4>&1
times=$({ time "$@" 2>&3 1>&4; } 2>&1)
code=$?
echo "$times $PWD" >>"$HAWSER_TEST_TIMES"
exit $code
