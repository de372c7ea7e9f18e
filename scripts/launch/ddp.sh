#!/usr/bin/env bash
# Data parallel on one machine: every GPU holds weights, gradients and optimizer.
#   scripts/launch/ddp.sh GPUS CONFIG... [section.key=value ...] [--resume]
# shellcheck source=scripts/launch/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
one_machine ddp "$@"
