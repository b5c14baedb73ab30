//go:build tools

// Package peers pins the programs that this peer is built from.
package peers

import (
	_ "github.com/argoproj/argo-rollouts/cmd/rollouts-controller"
)
