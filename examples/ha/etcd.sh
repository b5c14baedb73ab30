#!/bin/sh
# One of three members of an etcd cluster on this machine: etcd.sh 1|2|3
set -eu
n=$1
dir=${HA:-/tmp/podwire-ha}
members=m1=http://127.0.0.1:2380,m2=http://127.0.0.2:2380,m3=http://127.0.0.3:2380
mkdir -p "$dir"
exec "${ETCD:-etcd}" --name "m$n" --data-dir "$dir/etcd$n" \
    --listen-client-urls "http://127.0.0.$n:2379" --advertise-client-urls "http://127.0.0.$n:2379" \
    --listen-peer-urls "http://127.0.0.$n:2380" --initial-advertise-peer-urls "http://127.0.0.$n:2380" \
    --initial-cluster "$members"
