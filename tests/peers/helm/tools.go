//go:build tools

// Package peers pins the programs that this peer is built from.
package peers

import (
	_ "helm.sh/helm/v4/cmd/helm"
)
