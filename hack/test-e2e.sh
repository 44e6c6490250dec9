#!/usr/bin/env bash
# Copyright 2026 The Hawser Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Runs the suites that have clusters of their own. They wait more than they compute, so they run at the same time, and
# the tests of kubelet in two halves. Each has a cluster and a mount namespace of its own; otherwise the nodes of one
# would hold the volumes of another. Each line begins with the name of what printed it.
#
# POD_NAMESPACE and HAWSER_NAME_PREFIX set namespace and name prefix of all installations. If neither is set, the second
# half and the alerts run under another namespace and prefix than the default, so that both are tested.
#
#   hack/test-e2e.sh DIR SUITE ...     SUITE: kubelet, images, alerts; DIR-NAME is the directory of a cluster
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
trap 'trap "" TERM; kill 0; exit 130' INT TERM

dir=$1
shift
export HAWSER_TEST_E2E=${HAWSER_TEST_E2E:-hawser}
running=()
other=()
[[ -z ${POD_NAMESPACE+set}${HAWSER_NAME_PREFIX+set} ]] &&
	other=(POD_NAMESPACE=storage-system HAWSER_NAME_PREFIX=acme-)

run() { # NAME SUITE [TESTS]
	local names=()
	[[ $1 == kubelet-2 || $1 == alerts ]] && names=("${other[@]}")
	env HAWSER_TEST_E2E_DIR="$dir-$1" HAWSER_TEST_ALERTS="$dir-$1" "${names[@]}" unshare --mount \
		go test -v -count=1 -timeout 55m -run "${3:-.}" "./test/$2" 2>&1 | sed -u "s/^/$1: /" &
	running+=($!)
}

# half prints a pattern for every second test of a suite, from the first or the second on.
half() { # SUITE 0|1
	grep -hoE '^func Test\w+\(t ' "test/$1"/*_test.go |
		awk -v rest="$2" 'NR % 2 == rest { sub(/\(t/, "", $2); print $2 }' | paste -sd '|' |
		sed 's/.*/^(&)$/'
}

for suite in "$@"; do
	if [[ $suite == kubelet ]]; then
		run kubelet-1 kubelet "$(half kubelet 1)"
		run kubelet-2 kubelet "$(half kubelet 0)"
	else
		run "$suite" "$suite"
	fi
done
failed=0
for suite in "${running[@]}"; do
	wait "$suite" || failed=1
done
exit $failed
