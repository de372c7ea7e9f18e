#!/usr/bin/env bash
# FSDP2 on one machine: the same without DeepSpeed.
#   scripts/launch/fsdp2.sh GPUS CONFIG... [section.key=value ...] [--resume]
# shellcheck source=scripts/launch/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
need 2 "scripts/launch/fsdp2.sh GPUS CONFIG... [section.key=value ...]" "$@"
gpus=$1
shift
number GPUS "$gpus"
check "$gpus" "$@"
launch accelerate launch --config_file configs/accelerate/fsdp2.yaml --num_processes "$gpus" -m train "$@"
