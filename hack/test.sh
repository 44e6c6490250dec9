#!/usr/bin/env bash
# Copyright 2026 The Hawser Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Runs the tests of all modules with -race and says at the end what was left out and why.
# As root nothing may be left out: then a test that says LEFT OUT fails the run.
#
#   hack/test.sh [PACKAGE ...]     default: every package
set -uo pipefail

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=0
# Packages that are tested beside each other. Most of them wait for control planes, drivers and disks more than they compute.
beside=$(($(nproc) * 3 / 2))

run() { # DIRECTORY FLAGS AND PACKAGES...
	local directory=$1
	shift
	(cd "$directory" && go test -v -p "$beside" -timeout 25m "$@" 2>&1) | tee -a "$log" |
		grep --line-buffered -E '^(ok|FAIL|---? FAIL|panic:|[[:space:]]+--- FAIL)|LEFT OUT|WARNING: DATA RACE|^handshake: |^simulation: |^# |\.go:[0-9]+:[0-9]+: '
	[[ ${PIPESTATUS[0]} -eq 0 ]] || failed=1
}

if [[ $# -gt 0 ]]; then
	run "$top" -race "$@"
else
	# First what takes longest, and waits more than it computes.
	run "$top" -race ./test/e2e ./...
	# Explorations only begin under the race detector; here is all of them.
	run "$top" ./internal/handshake
	# Most simulated worlds too: they are many times slower under the race detector.
	run "$top" -run TestSimulation ./internal/simulation -seeds=1000
	run "$top/hack/localcluster" -race ./...
fi

if [[ $failed -ne 0 ]]; then
	echo "== output around the failures"
	grep -n -B60 -E -- '^[[:space:]]*--- FAIL|^panic:|WARNING: DATA RACE|^FAIL' "$log" | tail -n 500
fi
if grep -q 'LEFT OUT' "$log"; then
	echo "== left out:"
	grep -h 'LEFT OUT' "$log" | sort | uniq -c
	# A capability that this machine's root lacks cannot be installed; everything else can. What is
	# left out under the race detector ran without it.
	if [[ $(id -u) -eq 0 ]] && grep 'LEFT OUT' "$log" | grep -q -v -E 'LEFT OUT (\(needs CAP_|under the race detector)'; then
		echo "tests were left out although this is root" >&2
		failed=1
	fi
fi
echo "tests: $(grep -c -E '^[[:space:]]*--- PASS' "$log") passed, $(grep -c -E '^[[:space:]]*--- FAIL' "$log") failed, $(grep -c -E '^[[:space:]]*--- SKIP' "$log") skipped"
exit $failed
