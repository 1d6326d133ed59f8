//go:build tools

// Package tools pins helm and kwok, which are built as their own programs:
// their module graphs move at another pace than Kubernetes' own.
package tools

import (
	_ "helm.sh/helm/v4/cmd/helm"
	_ "sigs.k8s.io/kwok/cmd/kwok"
)
