"""What ``--dry-run`` looks at beside the plan: what would end a run minutes after its start, without loading weights.

Imports no torch, and transformers' tokenizers only where the policy's files are at hand.
"""

import netrc
import os
import shutil
import sqlite3
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sqale_grpo.env.connect import check_sqlite
from sqale_grpo.env.errors import first_line
from sqale_grpo.rollout.policy_path import resolve_policy
from sqale_grpo.settings.keys import Config
from sqale_grpo.settings.run_folder import checkpoints_bytes, run_folder
from sqale_grpo.settings.shape import launched_processes
from sqale_grpo.train.memory import GIB, checkpoint_bytes
from sqale_grpo.train.model_shape import model_shape
from sqale_grpo.train.preflight.table import CheckRow, failed, made, right

LAUNCH = ("WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
LAUNCHER = "TORCHELASTIC_RUN_ID"  # torchrun and accelerate set it; nobody sets it by hand
WANDB_HOST = "api.wandb.ai"
NEEDLE = "a question of the examination"


def examine(config: Config) -> list[CheckRow]:
    """A row for each thing that was looked at."""
    checks: list[tuple[str, Callable[[Config], CheckRow]]] = [
        ("launcher variables", launcher_variables),
        ("SQLite", sqlite_version),
        ("chat template", chat_template),
        ("trackers", trackers),
        ("proxy", proxy),
        ("push", push),
        ("free space", free_space),
    ]
    return [made(name, lambda check=check: check(config)) for name, check in checks]  # type: ignore[misc]


def launcher_variables(config: Config) -> CheckRow:
    """Variables of a launch that an earlier one left in the shell make a run wait for processes that never come."""
    name, found = "launcher variables", {each: os.environ[each] for each in LAUNCH if each in os.environ}
    shown = " ".join(f"{each}={value}" for each, value in found.items())
    if problem := launch_problem():
        return failed(name, problem, f"unset {' '.join(found)}")
    if len(found) > 1 and LAUNCHER not in os.environ and launched_processes() > 1:
        return CheckRow(
            name,
            "warned",
            f"{shown}, and no launcher of torch's: a run waits for {launched_processes()} processes",
            f"where they are left over: unset {' '.join(found)}",
        )
    return right(name, shown or "none set: one process")


def launch_problem() -> str | None:
    """What is wrong with the variables of this launch; None where nothing is. WORLD_SIZE alone asks for a plan."""
    processes = launched_processes()
    rank = os.environ.get("RANK")
    if rank is not None and not (rank.isdigit() and int(rank) < processes):
        return f"RANK={rank} is none of WORLD_SIZE={processes} processes"
    if processes > 1 and rank is not None and "MASTER_ADDR" not in os.environ:
        return f"WORLD_SIZE={processes} and RANK={rank}, and no MASTER_ADDR at which the processes would meet"
    return None


def sqlite_version(config: Config) -> CheckRow:
    """Whether the SQLite of this Python is one that the sandbox can use."""
    check_sqlite(sqlite3.sqlite_version_info)
    return right("SQLite", sqlite3.sqlite_version)


def chat_template(config: Config) -> CheckRow:
    """Whether the policy's template takes a system message and later user turns, as an episode needs them."""
    name = "chat template"
    path = resolve_policy(config.model.path)
    if not Path(path).is_dir():
        return CheckRow(name, "not made", f"{path} is on the Hub: its tokenizer is looked at when the run starts")
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(str(path))
    except (OSError, ValueError) as error:
        return failed(
            name, f"no tokenizer can be loaded from {path} ({first_line(error)})", "name a whole model folder"
        )
    return template_row(tokenizer, config.model.enable_thinking)


def template_row(tokenizer: Any, thinking: bool) -> CheckRow:
    """Whether a tokenizer's template can render an episode."""
    from sqale_grpo.rollout.chat import chat_frame

    name = "chat template"
    mend = "use an instruction-tuned model, or put a chat_template.jinja of another into its folder"
    try:
        frame = chat_frame(tokenizer, thinking)
        messages = [{"role": "system", "content": "You answer."}, {"role": "user", "content": NEEDLE}]
        ids = frame.prompt_ids(messages)
    except Exception as error:  # a template raises what it likes: no system role, roles that must alternate
        return failed(name, f"it cannot render an episode: {first_line(error.__cause__ or error)}", mend)
    text = tokenizer.decode(ids)
    if NEEDLE not in text or "You answer." not in text:
        return failed(name, "it leaves out the system message or the question", mend)
    return right(name, f"system and user turns, ended by {tokenizer.convert_ids_to_tokens(frame.stop_id)}")


def trackers(config: Config) -> CheckRow:
    """Whether W&B has a key, where the run reports to it: it would ask for one, and a job has nobody who answers."""
    name = "trackers"
    if "wandb" not in config.train.log_to:
        return right(name, ", ".join(config.train.log_to) or "none")
    if os.environ.get("WANDB_MODE") in ("offline", "disabled"):
        return right(name, f"wandb, {os.environ['WANDB_MODE']}")
    host = urlsplit(os.environ.get("WANDB_BASE_URL", "")).hostname or WANDB_HOST
    if os.environ.get("WANDB_API_KEY") or _in_netrc(host):
        return right(name, "wandb, with a key")
    return failed(name, f"wandb has no key for {host}", "wandb login, or WANDB_MODE=offline")


def proxy(config: Config) -> CheckRow:
    """Whether requests to a vLLM server would go through a proxy that cannot reach it, and proxies are addresses."""
    name, proxies = "proxy", urllib.request.getproxies()
    for scheme in ("http", "https", "all"):
        url = proxies.get(scheme)
        if url and (not urlsplit(url).hostname or urlsplit(url).scheme not in ("http", "https", "socks5", "socks5h")):
            return failed(name, f"{scheme}_proxy={url} is no address", f"{scheme}_proxy=http://HOST:PORT, or unset it")
    if config.rollout.backend == "vllm_server":
        host = urlsplit(config.rollout.vllm_server).hostname or ""
        scheme = urlsplit(config.rollout.vllm_server).scheme
        url = proxies.get(scheme) or proxies.get("all")
        if url and not urllib.request.proxy_bypass(host):
            return CheckRow(
                name,
                "warned",
                f"requests to {host} go through {_without_secret(url)}",
                f"NO_PROXY={host}, if they must not",
            )
    return right(name, ", ".join(f"{each} {_without_secret(url)}" for each, url in proxies.items()) or "none")


def push(config: Config) -> CheckRow:
    """Whether this machine may write the repository that checkpoints are pushed to."""
    name, repo = "push", config.train.push_repo
    if not config.train.push_every or repo is None:
        return right(name, "nothing is pushed")
    if os.environ.get("HF_HUB_OFFLINE") == "1":
        return failed(name, f"{repo} cannot be reached with HF_HUB_OFFLINE=1", "unset it, or train.push_every=0")
    from huggingface_hub import HfApi, get_token

    if not get_token():
        return failed(name, "this machine has no token for the Hub", "hf auth login")
    try:
        who = HfApi().whoami()
    except Exception as error:  # the HTTP library's own errors, too
        return CheckRow(
            name, "warned", f"the Hub does not say who this is ({first_line(error)})", "see whether it is up"
        )
    owner = repo.partition("/")[0]
    roles = {who["name"]: "owner", **{each["name"]: each.get("roleInOrg", "") for each in who.get("orgs", [])}}
    if owner not in roles:
        return failed(name, f"{who['name']} is neither {owner} nor in it", f"train.push_repo={who['name']}/NAME")
    if roles[owner] == "read":
        return failed(name, f"{who['name']} may only read in {owner}", f"train.push_repo={who['name']}/NAME")
    if who.get("auth", {}).get("accessToken", {}).get("role") == "read":
        return failed(name, f"the token of {who['name']} may only read", "hf auth login with a token that may write")
    return right(name, f"{who['name']} may write to {repo}")


def free_space(config: Config) -> CheckRow:
    """Whether the run's disk has room for the checkpoints that are kept and the one that is written."""
    name, folder = "free space", existing(run_folder(config))
    shape = model_shape(resolve_policy(config.model.path), config.model.lora_targets)
    size = max(checkpoint_bytes(config, shape), checkpoint_bytes(config, shape, "zero2"))
    kept = config.train.keep_checkpoints + 1
    there = checkpoints_bytes(run_folder(config))
    wanted, free = max(0, size * kept - there), shutil.disk_usage(folder).free
    found = f"{free / GIB:,.1f} GiB free in {folder}; {kept} checkpoints take {wanted / GIB:,.1f}" + (
        " more" if there else ""
    )
    if free < wanted:
        # It may be another machine that trains.
        return CheckRow(name, "warned", found, "output=... on a larger disk, or train.keep_checkpoints=1")
    return right(name, found)


def existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that is there."""
    folder = folder.absolute()
    while not folder.is_dir():
        folder = folder.parent
    return folder


def _in_netrc(host: str) -> bool:
    try:
        return netrc.netrc(os.environ.get("NETRC")).authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False


def _without_secret(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "")
