#!/bin/sh
# One of two API servers on the etcd cluster, at 10.88.0.1 or 10.88.0.2: apiserver.sh 1|2
set -eu
n=$1
dir=${HA:-/tmp/podwire-ha}
mkdir -p "$dir"
exec "${PODWIRE:-podwire}" apiserver --data-dir "$dir/api$n" --bind-address "10.88.0.$n" --secure-port 6443 \
    --etcd-servers http://127.0.0.1:2379,http://127.0.0.2:2379,http://127.0.0.3:2379
