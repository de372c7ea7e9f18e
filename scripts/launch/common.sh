# shellcheck shell=bash
# Shared by the launch scripts, which source it. DRY_RUN=1 prints the command after its check and starts nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

# need COUNT "usage" "$@": fail with the usage where there are fewer arguments.
need() {
    local count=$1 usage=$2
    shift 2
    if (($# < count)); then
        echo "usage: $usage" >&2
        exit 2
    fi
}

# number NAME VALUE: fail where VALUE is no whole number. A leading 0 would make it octal.
number() {
    if ! [[ $2 =~ ^(0|[1-9][0-9]*)$ ]]; then
        echo "error: $1 must be a whole number, not $2" >&2
        exit 2
    fi
}

# present GPUS: fail where this machine shows fewer; without nvidia-smi, or for DRY_RUN, it is not known.
present() {
    local have
    if [[ ${DRY_RUN:-0} == 1 ]] || ! command -v nvidia-smi >/dev/null; then
        return
    fi
    if [[ -n ${CUDA_VISIBLE_DEVICES:-} ]]; then
        have=$(tr ',' '\n' <<<"$CUDA_VISIBLE_DEVICES" | grep -c .)
    else
        have=$(nvidia-smi --list-gpus | grep -c '^GPU' || true)
    fi
    if ((have < $1)); then
        echo "error: $1 GPUs asked for, and there are $have here (nvidia-smi, CUDA_VISIBLE_DEVICES)" >&2
        exit 2
    fi
}

# check PROCESSES CONFIG...: the plan without a model; a batch that does not divide, a key or corpus that is not there
# ends the launch in a second.
check() {
    local processes=$1
    shift
    local plan
    plan=$(WORLD_SIZE=$processes COLUMNS=200 sqale-grpo train "$@" --dry-run)
    if [[ ${DRY_RUN:-0} != 1 ]] && grep -q "prepare it first" <<<"$plan"; then
        echo "error: $(grep -A1 "prepare it first" <<<"$plan" | tr '\n' ' ')" >&2
        exit 2
    fi
}

# restarts WORDS...: accelerate's option that starts the processes again after a break, where train.heal allows one.
restarts() {
    local word
    for word in "$@"; do
        if [[ $word =~ ^train\.heal=([1-9][0-9]*)$ ]]; then
            echo "--max_restarts ${BASH_REMATCH[1]}"
        fi
    done
}

# launch COMMAND...: become it, or print it.
launch() {
    if [[ ${DRY_RUN:-0} == 1 ]]; then
        printf '%q ' "$@"
        echo
    else
        exec "$@"
    fi
}

# one_machine KIND GPUS CONFIG...: a launch on this machine with configs/accelerate/KIND.yaml.
one_machine() {
    local kind=$1 gpus
    shift
    need 2 "scripts/launch/$kind.sh GPUS CONFIG... [section.key=value ...]" "$@"
    gpus=$1
    shift
    number GPUS "$gpus"
    present "$gpus"
    check "$gpus" "$@"
    # shellcheck disable=SC2046  # two words or none
    launch accelerate launch --config_file "configs/accelerate/$kind.yaml" --num_processes "$gpus" $(restarts "$@") \
        -m sqale_grpo.train "$@"
}
