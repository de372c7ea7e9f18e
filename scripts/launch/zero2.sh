#!/usr/bin/env bash
# DeepSpeed ZeRO-2 on one machine: gradients and optimizer are shared out. The choice for 2 to 8 GPUs of 80 GB.
#   scripts/launch/zero2.sh GPUS CONFIG... [section.key=value ...] [--resume]
# shellcheck source=scripts/launch/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
need 2 "scripts/launch/zero2.sh GPUS CONFIG... [section.key=value ...]" "$@"
gpus=$1
shift
number GPUS "$gpus"
check "$gpus" "$@"
launch accelerate launch --config_file configs/accelerate/zero2.yaml --num_processes "$gpus" -m train "$@"
