#!/usr/bin/env bash
# Copyright 2026 The Hawser Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Runs suites on real kubelets at the same time: they wait more than they compute. Each has a mount namespace of its
# own; otherwise the nodes of one would hold the volumes of another. Each line begins with the suite that printed it.
#
#   hack/test-e2e.sh DIR SUITE ...     SUITE: kubelet, images; DIR-SUITE is the directory of a suite's cluster
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
trap 'trap "" TERM; kill 0; exit 130' INT TERM

dir=$1
shift
export HAWSER_TEST_E2E=${HAWSER_TEST_E2E:-hawser}
running=()
for suite in "$@"; do
	HAWSER_TEST_E2E_DIR=$dir-$suite unshare --mount \
		go test -v -count=1 -timeout 45m "./test/$suite" 2>&1 | sed -u "s/^/$suite: /" &
	running+=($!)
done
failed=0
for suite in "${running[@]}"; do
	wait "$suite" || failed=1
done
exit $failed
