#!/usr/bin/env bash
# Data parallel on one machine: every GPU holds weights, gradients and optimizer.
#   scripts/launch/ddp.sh GPUS CONFIG... [section.key=value ...] [--resume]
# shellcheck source=scripts/launch/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
need 2 "scripts/launch/ddp.sh GPUS CONFIG... [section.key=value ...]" "$@"
gpus=$1
shift
number GPUS "$gpus"
check "$gpus" "$@"
launch accelerate launch --config_file configs/accelerate/ddp.yaml --num_processes "$gpus" -m train "$@"
