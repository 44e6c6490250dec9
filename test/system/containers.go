/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package system

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// ContainerProcess is a process of a container of the pod which has the directory.
func ContainerProcess(pod *corev1.Pod, dir string) (int, error) {
	groups, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		return 0, err
	}
	uid := string(pod.UID)
	for _, group := range groups {
		data, err := os.ReadFile(group)
		if err != nil || !strings.Contains(strings.ReplaceAll(string(data), "_", "-"), uid) {
			continue
		}
		process := filepath.Dir(group)
		if _, err := os.Stat(filepath.Join(process, "root", dir)); err == nil {
			return strconv.Atoi(filepath.Base(process))
		}
	}
	return 0, fmt.Errorf("pod %s has no process with the directory %s", pod.Name, dir)
}
