//go:build tools

// Package peers pins the programs that this peer is built from.
package peers

import (
	_ "sigs.k8s.io/kueue/cmd/kueue"
)
