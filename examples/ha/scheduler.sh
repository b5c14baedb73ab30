#!/bin/sh
# One of two schedulers, beside the API server of the same number: scheduler.sh 1|2
set -eu
exec "${PODWIRE:-podwire}" scheduler --kubeconfig "${HA:-/tmp/podwire-ha}/api$1/scheduler.kubeconfig"
