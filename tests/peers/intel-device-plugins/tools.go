//go:build tools

// Package peers pins the programs that this peer is built from.
package peers

import (
	_ "github.com/intel/intel-device-plugins-for-kubernetes/cmd/gpu_plugin"
)
