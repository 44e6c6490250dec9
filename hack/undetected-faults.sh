#!/usr/bin/env bash
# Copyright 2026 The Hawser Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Runs the tests of faults on virtual machines with an agent from which the detections are removed
# (test/machine/undetected_test.go). Each of them must fail, and at the detection. What needs none must pass.
# HAWSER_TEST_MACHINES is the directory of the machines.
#
#   hack/undetected-faults.sh [PATTERN]        default: all; otherwise those that match
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

control=TestAnIntentBecomesReadyInAMachine
disks=TestAFaultOfADiskIsNamedAndLeavesOtherVolumesAlone
tests=(
	"$disks/the_disk_of_ext4_is_pulled_out"
	"$disks/the_disk_of_xfs_is_pulled_out"
	"$disks/the_disk_of_ext4_answers_no_more"
	"$disks/the_disk_of_xfs_answers_no_more"
	"$disks/a_directory_of_ext4_is_damaged"
	"$disks/the_daemon_of_FUSE_is_killed"
	TestAnIdleVolumeWhoseDiskIsGivenUpIsNamed
	TestAnIdleVolumeWhoseDiskFailsIsNotNoticedBeforeItsNextWrite
	TestAnAzureDiskThatIsGoneIsNamed
	TestAnISCSITargetThatIsLostIsNamed
	TestAnISCSIExportThatIsGoneIsNamed
	TestAVolumeThatWaitsForAPathIsNamed
	TestAVolumeThatLosesAllPathsIsNamed
	TestAnNFSServerThatDoesNotAnswerHangsNothingElse
	TestAnNFSExportThatIsGoneIsNamed
	TestAFullFilesystemIsShownAndStaysReady/no_space
	TestAFullFilesystemIsShownAndStaysReady/no_inodes
	TestAVolumeIsWholeAfterAResetOrAPowerCutInAnyStep/reset
	TestAVolumeIsWholeAfterAResetOrAPowerCutInAnyStep/power_cut
	TestNothingOfAMachineThatWasTakenForDeadReachesItsVolume/a_driver_that_promises_to_cut_the_access
	TestNothingOfAMachineThatWasTakenForDeadReachesItsVolume/a_driver_that_promises_nothing
)
mapfile -t tests < <(printf '%s\n' "${tests[@]}" | grep -E "${1:-.}")
run=$(printf '%s\n' "$control" "${tests[@]%%/*}" | sort -u | paste -s -d '|')
log=$(mktemp)
trap 'rm -f "$log"' EXIT
HAWSER_TEST_MACHINES_UNDETECTED=1 go test -v -count=1 -parallel 2 -timeout 60m -run "^($run)\$" ./test/machine | tee "$log"
failed=0
if ! grep -a -q -- "--- PASS: $control (" "$log"; then
	echo "fails although it needs no detection: $control"
	failed=1
fi
for test in "${tests[@]}"; do
	if grep -a -q -- "--- FAIL: $test (" "$log" && grep -a -q "not detected: $test\$" "$log"; then
		echo "fails without its detection, as it must: $test"
	else
		echo "does not fail at its detection: $test"
		failed=1
	fi
done
exit $failed
