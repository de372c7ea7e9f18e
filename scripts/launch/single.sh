#!/usr/bin/env bash
# One GPU.
#   scripts/launch/single.sh CONFIG... [section.key=value ...] [--resume]
# shellcheck source=scripts/launch/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
need 1 "scripts/launch/single.sh CONFIG... [section.key=value ...]" "$@"
present 1
check 1 "$@"
launch accelerate launch --config_file configs/accelerate/single.yaml -m sqale_grpo.train "$@"
