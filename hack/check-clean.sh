#!/usr/bin/env bash
# Copyright 2026 The Hawser Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Fails when generating, tidying or formatting has left a difference.
set -euo pipefail
if [[ -n $(git status --porcelain) ]]; then
	git status --short
	# The catalog has whole manifests in a line.
	git --no-pager diff -- . ':!catalog'
	echo "verify: the tree differs from what is committed" >&2
	exit 1
fi
echo "verify: no difference"
