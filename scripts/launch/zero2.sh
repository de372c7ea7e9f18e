#!/usr/bin/env bash
# DeepSpeed ZeRO-2 on one machine: gradients and optimizer are shared out. The choice for 2 to 8 GPUs of 80 GB.
#   scripts/launch/zero2.sh GPUS CONFIG... [section.key=value ...] [--resume]
# shellcheck source=scripts/launch/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
one_machine zero2 "$@"
