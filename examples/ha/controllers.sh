#!/bin/sh
# One of two sets of controllers, beside the API server of the same number: controllers.sh 1|2
set -eu
exec "${PODWIRE:-podwire}" controllers --kubeconfig "${HA:-/tmp/podwire-ha}/api$1/controllers.kubeconfig"
