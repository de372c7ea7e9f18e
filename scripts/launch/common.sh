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

# number NAME VALUE: fail where VALUE is no whole number.
number() {
    if ! [[ $2 =~ ^[0-9]+$ ]]; then
        echo "error: $1 must be a whole number, not $2" >&2
        exit 2
    fi
}

# check PROCESSES CONFIG...: the plan without a model; a batch that does not divide, a key or corpus that is not there
# ends the launch in a second.
check() {
    local processes=$1
    shift
    WORLD_SIZE=$processes python -m train "$@" --dry-run >/dev/null
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
