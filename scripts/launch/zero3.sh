#!/usr/bin/env bash
# DeepSpeed ZeRO-3 on one machine: weights and reference are shared out too.
#   scripts/launch/zero3.sh GPUS CONFIG... [section.key=value ...] [--resume]
# shellcheck source=scripts/launch/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
need 2 "scripts/launch/zero3.sh GPUS CONFIG... [section.key=value ...]" "$@"
gpus=$1
shift
number GPUS "$gpus"
check "$gpus" "$@"
launch accelerate launch --config_file configs/accelerate/zero3.yaml --num_processes "$gpus" -m train "$@"
