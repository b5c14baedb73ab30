//go:build tools

// Package peers pins the suites that this peer is built from.
package peers

import (
	_ "go.etcd.io/etcd/tests/v3/common"
)
