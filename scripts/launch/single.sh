#!/usr/bin/env bash
# One GPU: the first that is visible. With several the trainer would split each pass over all of them.
#   scripts/launch/single.sh CONFIG... [section.key=value ...] [--resume]
# shellcheck source=scripts/launch/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
need 1 "scripts/launch/single.sh CONFIG... [section.key=value ...]" "$@"
present 1
export CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES-0}
CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES%%,*}
check 1 "$@"
launch accelerate launch --config_file configs/accelerate/single.yaml -m sqale_grpo.train "$@"
