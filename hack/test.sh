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
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
# What runs beside does not get an interrupt by itself.
trap 'trap "" TERM; kill 0; exit 130' INT TERM
# The end-to-end tests that stop the API server and wait until everything has found back to it.
outages='^TestA(nAPIServerStopped|RestoredAPIServer)'

run() { # DIRECTORY FLAGS AND PACKAGES...
	local directory=$1 log
	shift
	log=$(mktemp "$logs/XXXXXX")
	(cd "$directory" && go test -v -p "$(nproc)" -timeout 25m "$@" 2>&1) | tee "$log" |
		grep --line-buffered -E '^(ok|FAIL|---? FAIL|panic:|[[:space:]]+--- FAIL)|LEFT OUT|WARNING: DATA RACE|^handshake: |^simulation: |^# |\.go:[0-9]+:[0-9]+: '
	return "${PIPESTATUS[0]}"
}

# What only computes, and yields to everything else. Under the race detector it is many times slower, so that little of it runs there.
compute() {
	local failed=0
	renice -n 19 "$BASHPID" >/dev/null
	run "$top" -timeout 1h ./internal/handshake || failed=1
	run "$top" -timeout 1h -run TestSimulation ./internal/simulation -seeds=1000 || failed=1
	return $failed
}

packages() {
	local failed=0 others
	mapfile -t others < <(cd "$top" && go list ./... | grep -v '/test/e2e$')
	run "$top" -race "${others[@]}" || failed=1
	run "$top/hack/localcluster" -race ./... || failed=1
	return $failed
}

tests=()
if [[ $# -gt 0 ]]; then
	run "$top" -race "$@" &
	tests+=($!)
else
	compute &
	tests+=($!)
	# What takes longest goes in two processes, each with a cluster of its own: mostly they wait.
	run "$top" -race -run "$outages" ./test/e2e &
	tests+=($!)
	run "$top" -race -skip "$outages" ./test/e2e &
	tests+=($!)
	packages &
	tests+=($!)
fi
failed=0
for test in "${tests[@]}"; do
	wait "$test" || failed=1
done

# What the tests that failed printed, and what was printed outside of tests where a program ended.
explain() { # LOG
	awk 'NR == FNR { if ($1 == "---" && $2 == "FAIL:") failed[$3]; next }
		$1 == "===" { test = $3; next }
		$1 == "---" { test = $3 }
		/^(panic:|SIGQUIT:|WARNING: DATA RACE|fatal error:)/ { loud = 200 }
		test in failed || loud-- > 0' "$1" "$1"
}
if [[ $failed -ne 0 ]]; then
	echo "== output of the failures"
	for log in "$logs"/*; do
		explain "$log"
	done | tail -n 500
fi
if grep -q 'LEFT OUT' "$logs"/*; then
	echo "== left out:"
	grep -h 'LEFT OUT' "$logs"/* | sort | uniq -c
	# A capability that this machine's root lacks cannot be installed; everything else can. What is
	# left out under the race detector ran without it.
	if [[ $(id -u) -eq 0 ]] && grep -h 'LEFT OUT' "$logs"/* | grep -q -v -E 'LEFT OUT (\(needs CAP_|under the race detector)'; then
		echo "tests were left out although this is root" >&2
		failed=1
	fi
fi
count() { grep -h -c -E "^[[:space:]]*--- $1" <(cat "$logs"/*); }
echo "tests: $(count PASS) passed, $(count FAIL) failed, $(count SKIP) skipped"
exit $failed
