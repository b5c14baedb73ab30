//go:build tools

// Package peers pins the programs that this peer is built from.
package peers

import (
	_ "github.com/NVIDIA/k8s-device-plugin/cmd/nvidia-device-plugin"
)
