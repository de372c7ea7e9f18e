#!/usr/bin/env bash
# FSDP2 on one machine: the same without DeepSpeed.
#   scripts/launch/fsdp2.sh GPUS CONFIG... [section.key=value ...] [--resume]
# shellcheck source=scripts/launch/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
one_machine fsdp2 "$@"
