/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package install reports where Hawser is installed.
package install

import (
	"os"
	"strings"
	"sync"

	volumesv1alpha1 "github.com/hawser-io/hawser/api/v1alpha1"
)

const (
	// namespaceVariable is set by the manifests, from the pod's own metadata.
	namespaceVariable = "POD_NAMESPACE"
	// namespaceFile exists in every pod that has a service account token.
	namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
)

// Namespace is the namespace of this program's installation. It contains a Lease for each agent's liveness, and the
// locks of exclusive volumes. It cannot change while the program runs.
var Namespace = sync.OnceValue(func() string { return namespace(os.Getenv(namespaceVariable), namespaceFile) })

// namespace prefers the variable to the file. A program outside a pod that has neither uses the default.
func namespace(variable, file string) string {
	if variable != "" {
		return variable
	}
	text, err := os.ReadFile(file)
	if name := strings.TrimSpace(string(text)); err == nil && name != "" {
		return name
	}
	return volumesv1alpha1.InstallNamespace
}
