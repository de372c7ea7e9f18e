#!/usr/bin/env bash
# ZeRO-2 over several machines. Start it on each, ranks 0, 1, ...; ADDRESS is that of rank 0. The project, the prepared
# corpora and the output folder must lie on a file system that all of them see.
#   scripts/launch/multinode.sh MACHINES GPUS_EACH RANK ADDRESS CONFIG... [section.key=value ...] [--resume]
# shellcheck source=scripts/launch/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
need 5 "scripts/launch/multinode.sh MACHINES GPUS_EACH RANK ADDRESS CONFIG... [section.key=value ...]" "$@"
machines=$1 each=$2 rank=$3 address=$4
shift 4
number MACHINES "$machines"
number GPUS_EACH "$each"
number RANK "$rank"
if ((rank >= machines)); then
    echo "error: RANK is $rank; the ranks of $machines machines are 0 to $((machines - 1))" >&2
    exit 2
fi
present "$each"
check $((machines * each)) "$@"
# shellcheck disable=SC2046  # two words or none
launch accelerate launch --config_file configs/accelerate/multinode.yaml --num_machines "$machines" \
    --num_processes $((machines * each)) --machine_rank "$rank" --main_process_ip "$address" $(restarts "$@") \
    -m sqale_grpo.train "$@"
