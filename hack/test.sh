#!/usr/bin/env bash
# Copyright 2026 The Hawser Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Runs the tests of all modules, with -race where goroutines meet. Tests that took a second or more are printed as they
# pass, failures at once. The end says what was left out and why. As root nothing may be left out: a test that says LEFT
# OUT fails the run.
#
#   hack/test.sh [PACKAGE ...]         default: every package; of the explorations and the simulation a part
#   hack/test.sh --long                the explorations and the simulation in full, outages of the API server, every error
#                                      code of a driver, the commands of the documentation, and the release
#   hack/test.sh --race                the race detector in the programs as a whole
#   hack/test.sh --kubernetes 1.35     the packages that start an API server, with that of .cache/bin-1.35
set -uo pipefail

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
gotestsum=$top/.cache/tools/gotestsum
(cd "$top/hack/tools" && go build -o "$gotestsum" gotest.tools/gotestsum) || exit 1
long=
race=
case ${1:-} in
--long) long=yes && shift ;;
--race) race=yes && shift ;;
esac
# Against another Kubernetes only what starts an API server is of interest. The end-to-end tests build their own
# cluster, which is always of the newest version, and the simulation imitates that version.
if [[ ${1:-} == --kubernetes ]]; then
	export KUBEBUILDER_ASSETS=$top/.cache/bin-$2
	[[ -d $KUBEBUILDER_ASSETS ]] || KUBEBUILDER_ASSETS=$top/.cache/bin
	echo "== $("$KUBEBUILDER_ASSETS/kube-apiserver" --version)"
	mapfile -t packages < <(cd "$top" &&
		grep -rlE --include='*_test.go' 'apiserver\.(Start|Borrow)\(t\)' cmd config internal test |
		xargs dirname | sed '/^test\/e2e$/d; /^test\/simulation$/d; s,^,./,' | sort -u)
	set -- "${packages[@]}" ./test/apiserver
fi
# The events of all tests, one JSON line each. Several processes append; each writes a line as a whole.
work=$(mktemp -d)
events=$work/events
: >"$events"
trap 'rm -rf "$work"' EXIT
# What runs beside does not get an interrupt by itself.
trap 'trap "" TERM; kill 0; exit 130' INT TERM

# The end-to-end tests that stop the API server and wait until everything has found back to it. They have their own
# cluster, in which also every error code of every call is tried.
outages='^TestA(nAPIServerStopped|RestoredAPIServer)'

# The time of each package, for hack/test-times.sh.
[[ ${HAWSER_TEST_TIMES:-} ]] && export GOFLAGS="${GOFLAGS:-} -exec=$top/hack/test-times.sh"

# Memory is there, and the tests compute less if they collect garbage less often.
export GOGC=${GOGC:-400}

run() { # DIRECTORY FLAGS AND PACKAGES... Without debug information a test is linked a quarter faster.
	local directory=$1
	shift
	(cd "$directory" && go test -json -ldflags=-w -p "$(nproc)" -timeout 55m "$@" >>"$events")
}

# The comparison of the simulation's API server with a real one, which cannot start if it yields to everything else.
compared='^TestTheAPIServerInMemory'

# The crashes of an agent between any two steps, which are the same in a long run.
crashes='^TestAnAgentKilledBetweenAnyTwoSteps|^TestAnIntent.*WhileItsAgentIsDead'

# Every package of the main module, and of the modules api and pkg/volumes.
all=github.com/hawser-io/hawser/...

# What only computes, and yields to everything else. One goroutine explores each world, so the race detector would find
# nothing there.
compute() {
	local failed=0 seeds=50 part=-short skipped=$compared
	[[ $long ]] && seeds=1000 part= skipped="$compared|$crashes"
	renice -n 19 "$BASHPID" >/dev/null
	run "$top" -timeout 1h -skip "$skipped" ./test/simulation -seeds=$seeds || failed=1
	run "$top" -timeout 1h $part ./internal/handshake || failed=1
	return $failed
}

# Packages without concurrency of their own, and those whose subject is YAML in an API server. They run without the race
# detector, which makes them several times slower.
plain='/(api|config|hack)(/|$)|/internal/(cli|explain|operator|relocate|status)(/|$)|/cmd/(kubectl-hawser|operator)$'
plain+='|/internal/(machine|agent/(plan|podstats))$'
plain+='|/internal/controller/(attachment/decision|cached|claim|intent|nodehealth|resolve|secretaccess|volume)$'
plain+='|/test/(alerts|bundle|docs|csiloop/(ledger|loopdev|store)|gitops|images|kubelet|monitoring|parity)(/|$)'
# The programs as a whole. They take longest and wait much, so they run beside the others, without the race detector,
# which test/e2e, the simulation and the soak have in these programs.
whole=(./internal/agent ./test/manager)

# The launcher's test builds the launcher, that of the modules programs of others, and the end-to-end tests every
# program. The cache of go test does not know that, so these always run.
packages() {
	local failed=0 test listed plainly raced running=()
	run "$top" "${whole[@]}" &
	running+=($!)
	listed=$(cd "$top" && go list "$all" |
		grep -v -E '/test/(docs|e2e|manager|modules|release|simulation)$|/internal/(handshake|agent)$')
	mapfile -t plainly < <(grep -E "$plain" <<<"$listed")
	mapfile -t raced < <(grep -v -E "$plain" <<<"$listed")
	run "$top" "${plainly[@]}" &
	running+=($!)
	run "$top" -race "${raced[@]}" &
	running+=($!)
	run "$top" -count=1 ./test/modules &
	running+=($!)
	run "$top" -run "$compared" ./test/simulation &
	running+=($!)
	run "$top/hack/localcluster" -count=1 ./... &
	running+=($!)
	run "$top/hack/images" ./... &
	running+=($!)
	for test in "${running[@]}"; do
		wait "$test" || failed=1
	done
	return $failed
}

# later runs tests without time limits, and yields to the clusters of test-e2e, which have some.
later() {
	renice -n 10 "$BASHPID" >/dev/null
	run "$top" "$@"
}

# compile builds packages with -race, but links no programs, which go build does each time although it writes none.
compile() {
	local packages
	packages=$(go list -f '{{if and .GoFiles (ne .Name "main")}}{{.ImportPath}}{{end}}' "$@") &&
		xargs go build -race <<<"$packages"
}

tests() {
	local failed=0 test running=()
	if [[ $# -gt 0 ]]; then
		run "$top" -race "$@"
		return
	fi
	# Many tests have time limits, so that nothing is compiled beside them on a fresh machine.
	(cd "$top" && compile "$all" && cd hack/localcluster && compile ./...) || return 1
	if [[ $long ]]; then
		run "$top" -race -count=1 -parallel 8 -run "$outages|^TestEveryAnswer" ./test/e2e &
		running+=($!)
		# Ten times slower than without it. Other worlds have fewer kinds of trouble, or hundreds of intents.
		later -timeout 1h -race -run '^TestSimulation$' ./test/simulation &
		running+=($!)
		later ./test/docs ./test/release &
		running+=($!)
	elif [[ $race ]]; then
		run "$top" -race "${whole[@]}"
		return
	else
		run "$top" -race -count=1 -parallel 8 -short -skip "$outages" ./test/e2e &
		running+=($!)
		packages &
		running+=($!)
	fi
	compute &
	running+=($!)
	for test in "${running[@]}"; do
		wait "$test" || failed=1
	done
	return $failed
}

tests "$@" &
running=$!
cd "$top" || exit 1
"$gotestsum" --raw-command --format testname --format-icons text --hide-summary=skipped,output -- \
	tail --lines=+1 --follow --sleep-interval=0.2 --pid="$running" "$events" |
	sed -u -E '/^PASS .* \(0\.[0-9]+s\)$/d; /^EMPTY /d'
reported=${PIPESTATUS[0]}
wait "$running" && [[ $reported -eq 0 ]]
failed=$?

# What failed, again, with the last three lines that each test logged: a failure prints much, with others in between. What
# fails outside a test prints a line that begins with FAIL.
awk -F '"' '{ test = ""; for (i = 2; i < NF; i += 2) if ($i == "Test") test = $(i + 2) }
	/"Action":"output"/ && test == "" && /"Output":"(FAIL|panic): / { sub(/.*"Output":"/, ""); print }
	/"Action":"output"/ && /_test\.go:[0-9]+: / { sub(/.*"Output":" */, "")
		before[test] = last[test]; last[test] = now[test]; now[test] = "    " $0 "\n" }
	/"Action":"fail"/ && test in now { printf "%s\n%s%s%s", test, before[test], last[test], now[test] }' "$events" |
	sed 's/\\n"}$//; s/\\u003c/</g; s/\\u003e/>/g; s/\\u0026/\&/g; s/\\"/"/g; 1i == failed:'

# What was left out, as lines.
left=$(sed -n -E 's/^.*"Output":"(.*LEFT OUT.*)\\n"\}$/\1/p' "$events" |
	sed 's/\\u003c/</g; s/\\u003e/>/g; s/\\u0026/\&/g; s/\\"/"/g')
if [[ -n $left ]]; then
	echo "== left out:"
	sort <<<"$left" | uniq -c
	# A capability that this machine's root lacks cannot be installed; everything else can.
	if [[ $(id -u) -eq 0 ]] && grep -q -v -E 'LEFT OUT (\(needs CAP_|of a short run)' <<<"$left"; then
		echo "tests were left out although this is root" >&2
		failed=1
	fi
fi
exit $failed
