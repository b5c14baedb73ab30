//go:build tools

// Package peers pins the programs that this peer is built from.
package peers

import (
	_ "go.etcd.io/etcd/etcdctl/v3"
)
