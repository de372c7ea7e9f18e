#!/usr/bin/env bash
# DeepSpeed ZeRO-3 on one machine: weights and reference are shared out too.
#   scripts/launch/zero3.sh GPUS CONFIG... [section.key=value ...] [--resume]
# shellcheck source=scripts/launch/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
one_machine zero3 "$@"
