"""``--dry-run`` as a doctor: what would end a run minutes later is told before anything is loaded."""

import copy
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sqale_grpo.settings.check import ConfigError
from sqale_grpo.settings.keys import Config
from sqale_grpo.settings.load import load_config
from sqale_grpo.train.doctor import (
    LAUNCH,
    chat_template,
    examine,
    free_space,
    launcher_variables,
    proxy,
    push,
    trackers,
)
from sqale_grpo.train.model_shape import is_assumed, model_shape
from sqale_grpo.train.start_checks import check_room, check_template
from tests.helpers.programs import program

main = program("train")
LEFT_OVER = {"WORLD_SIZE": "2", "RANK": "0", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable of this machine's own."""
    proxies = [name for name in os.environ if name.lower().endswith("_proxy")]
    for name in (*LAUNCH, *proxies, "WANDB_API_KEY", "WANDB_MODE", "WANDB_BASE_URL", "HF_TOKEN"):
        monkeypatch.delenv(name, raising=False)


def config(*overrides: str) -> Config:
    return load_config([], ["model.path=demo", *overrides])


def test_a_machine_where_all_is_right(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rows = examine(config(f"output={tmp_path}"))
    assert [row.name for row in rows] == [
        *("launcher variables", "SQLite", "chat template", "trackers", "proxy", "push", "free space")
    ]
    assert {row.state for row in rows} == {"right"}, rows


@pytest.mark.parametrize(
    ("environment", "state", "says"),
    [
        ({}, "right", "one process"),
        ({"WORLD_SIZE": "8"}, "right", "WORLD_SIZE=8"),  # what the launch scripts ask the plan with
        (LEFT_OVER, "warned", "waits for 2 processes"),
        ({**LEFT_OVER, "TORCHELASTIC_RUN_ID": "none"}, "right", "WORLD_SIZE=2"),
        ({"WORLD_SIZE": "2", "RANK": "0"}, "failed", "no MASTER_ADDR"),
        ({**LEFT_OVER, "RANK": "5"}, "failed", "RANK=5 is none of WORLD_SIZE=2"),
    ],
)
def test_variables_that_an_earlier_launch_left(monkeypatch, environment, state, says) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    row = launcher_variables(config())
    assert row.state == state and says in row.found, row
    assert state == "right" or f"unset {next(iter(environment))}" in row.mend


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({"WORLD_SIZE": "2"}, "WORLD_SIZE=2 is set and RANK is not: unset WORLD_SIZE"),
        ({"WORLD_SIZE": "2", "RANK": "1"}, "no MASTER_ADDR"),
    ],
)
def test_a_run_does_not_wait_for_a_launch_that_is_none(monkeypatch, capsys, tmp_path, environment, says) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert main(["configs/demo.yaml", f"output={tmp_path}"]) == 2
    assert says in capsys.readouterr().err


def with_template(folder: Path, tokenizer: Any, template: str) -> Path:
    tokenizer.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen3_5_text"}))
    (folder / "chat_template.jinja").write_text(template)
    return folder


NO_SYSTEM = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
)
ALTERNATES = (
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant') }}{% endif %}"
    "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
)
DROPS = (
    "{% for m in messages if m.role != 'system' %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
    "{% endfor %}<|im_start|>assistant\n"
)


@pytest.mark.parametrize(
    ("template", "says"),
    [
        (NO_SYSTEM, "cannot render an episode: System role not supported"),
        (ALTERNATES, "cannot render an episode: Conversation roles must alternate"),
        (DROPS, "leaves out the system message"),
        ("{{ messages[-1].content }}", "cannot render an episode: the chat template of"),
    ],
)
def test_a_template_that_no_episode_fits_is_told(tmp_path: Path, tokenizer: Any, template: str, says: str) -> None:
    folder = with_template(tmp_path / "model", tokenizer, template)
    row = chat_template(config(f"model.path={folder}"))
    assert row.state == "failed" and says in row.found and "instruction-tuned" in row.mend, row


def test_a_folder_without_a_tokenizer_is_told(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen3_5_text"}))
    row = chat_template(config(f"model.path={tmp_path}"))
    assert row.state == "failed" and str(tmp_path) in row.found and "chat template" in row.found, row


def test_a_tracker_without_a_key_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    asked = config("train.log_to=[wandb]")
    row = trackers(asked)
    assert row.state == "failed" and "no key for api.wandb.ai" in row.found and "wandb login" in row.mend
    (tmp_path / "netrc").write_text("machine api.wandb.ai\n  login user\n  password k\n")
    assert trackers(asked).state == "right"
    monkeypatch.setenv("WANDB_BASE_URL", "https://wandb.example.org")
    assert "no key for wandb.example.org" in trackers(asked).found
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert trackers(asked).state == "right"


def test_a_proxy_in_the_servers_way_is_told_and_its_password_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = config("rollout.backend=vllm_server", "rollout.vllm_server=http://node7:8000")
    assert proxy(asked).state == "right"
    monkeypatch.setenv("http_proxy", "http://user:secret@gate:3128")
    row = proxy(asked)
    assert row.state == "warned" and "requests to node7 go through http://gate:3128" in row.found
    assert "secret" not in row.found and row.mend.startswith("NO_PROXY=node7")
    monkeypatch.setenv("no_proxy", "node7")
    assert proxy(asked).state == "right"
    monkeypatch.setenv("https_proxy", "gate:3128")
    assert proxy(asked).state == "failed" and "is no address" in proxy(asked).found


# What the Hub says of a token; the request itself is huggingface_hub's.
WHO = {"name": "ada", "orgs": [{"name": "lab", "roleInOrg": "read"}, {"name": "house", "roleInOrg": "write"}]}


@pytest.mark.parametrize(
    ("repo", "state", "says"),
    [
        ("ada/shop", "right", "ada may write to ada/shop"),
        ("house/shop", "right", "may write to house/shop"),
        ("lab/shop", "failed", "ada may only read in lab"),
        ("bob/shop", "failed", "ada is neither bob nor in it"),
    ],
)
def test_who_may_push_where(monkeypatch: pytest.MonkeyPatch, repo: str, state: str, says: str) -> None:
    asked = config("train.save_updates=5", "train.push_every=5", f"train.push_repo={repo}")
    assert "HF_HUB_OFFLINE=1" in push(asked).found  # as the tests run
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setattr("huggingface_hub.get_token", lambda: "hf_test")
    monkeypatch.setattr("huggingface_hub.HfApi.whoami", lambda self: WHO)
    row = push(asked)
    assert row.state == state and says in row.found
    assert state == "right" or row.mend == "train.push_repo=ada/NAME"
    reads = {**WHO, "auth": {"accessToken": {"role": "read"}}}
    monkeypatch.setattr("huggingface_hub.HfApi.whoami", lambda self: reads)
    assert push(asked).state == "failed" and (
        state == "failed" or "the token of ada may only read" in push(asked).found
    )


def test_a_name_without_its_owner_is_refused() -> None:
    with pytest.raises(ConfigError, match="train.push_repo must be OWNER/NAME, not 'ada'"):
        config("train.push_every=50", "train.push_repo=ada")


def test_a_disk_too_small_is_told_before_a_model_is_loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = load_config([], [f"output={tmp_path / 'not' / 'there'}"])  # Qwen3.5-2B's sizes
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=20 * 2**30))
    row = free_space(asked)
    assert row.state == "warned" and f"20.0 GiB free in {tmp_path}" in row.found and "103.0" in row.found, row
    with pytest.raises(ConfigError, match="has 20.0 GiB free, and one checkpoint takes 34.3"):
        check_room(asked, "zero2")
    with pytest.raises(ConfigError, match="one checkpoint takes 30.5"):
        check_room(asked, "none")
    check_room(config(f"output={tmp_path}"), "none")
    # A model that was never loaded here: nothing is known of its size, so nothing is refused.
    check_room(load_config([], [f"output={tmp_path}", "model.path=someone/other-0.6B"]), "none")


def test_what_checkpoints_take_already_is_theirs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A disk of the size that the docs name is large enough for a resume, too."""
    asked = load_config([], [f"output={tmp_path}", "name=run"])
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=36 * 2**30))
    monkeypatch.setattr("sqale_grpo.train.doctor.checkpoints_bytes", lambda folder: 68 * 2**30)
    row = free_space(asked)
    assert row.state == "right" and "35.0 more" in row.found, row


def test_a_model_in_the_hubs_cache_has_its_own_size(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, random_policy: Any
) -> None:
    snapshot = tmp_path / "models--ada--tiny" / "snapshots" / "abc"
    random_policy.save_pretrained(snapshot)
    (tmp_path / "models--ada--tiny" / "refs").mkdir()
    (tmp_path / "models--ada--tiny" / "refs" / "main").write_text("abc")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    shape = model_shape("ada/tiny")
    assert shape.text == sum(each.numel() for each in random_policy.parameters())
    assert not is_assumed(shape, "ada/tiny")
    assert is_assumed(model_shape("ada/other"), "ada/other")
    assert not is_assumed(model_shape("Qwen/Qwen3.5-2B"), "Qwen/Qwen3.5-2B")


def test_a_run_refuses_what_the_examination_would_have_told(monkeypatch, capsys, tmp_path, tokenizer) -> None:
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    words = ["configs/demo.yaml", f"output={tmp_path}", f"corpus.prepared={tmp_path / 'prepared'}", "corpus.limit=60"]
    assert main([*words, "train.log_to=[wandb]"]) == 2
    assert "error: trackers: wandb has no key for api.wandb.ai; wandb login" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="chat template: it cannot render an episode: System role not supported"):
        check_template(config(), with_chat_template(tokenizer, NO_SYSTEM))


def with_chat_template(tokenizer: Any, template: str) -> Any:
    made = copy.deepcopy(tokenizer)
    made.chat_template = template
    return made


def test_a_failure_ends_the_dry_run_with_a_sentence(monkeypatch, capsys, tmp_path) -> None:
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    words = ["configs/demo.yaml", f"output={tmp_path}", f"corpus.prepared={tmp_path}", "--dry-run"]
    assert main(words) == 0
    assert "examination" in capsys.readouterr().out
    assert main([*words, "train.log_to=[wandb]"]) == 1
    assert "error: the examination failed at trackers: wandb has no key" in capsys.readouterr().err
