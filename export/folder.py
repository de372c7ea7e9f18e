"""The export of a run: weights, tokenizer, agent, prompts, model card and licence in one folder, written whole."""

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from transformers import AutoTokenizer

from sqale_grpo.agent.bundle import NAME, ROOT, write_agent
from sqale_grpo.agent.settings import Settings
from sqale_grpo.env.errors import first_line
from sqale_grpo.env.files import PARTIAL, partial_path, whole_folder
from sqale_grpo.env.prompts import Prompts
from sqale_grpo.export.card import write_card
from sqale_grpo.export.verify import verify
from sqale_grpo.export.weights import INDEX, export_weights
from sqale_grpo.rollout.chat import chat_frame
from sqale_grpo.rollout.demo_policy import demo_policy_folder
from sqale_grpo.rollout.policy import load_policy
from sqale_grpo.rollout.policy_path import DEMO, is_adapter, resolve_policy
from sqale_grpo.rollout.text_frame import TextFrame, text_frame
from sqale_grpo.settings.check import ConfigError
from sqale_grpo.settings.evaluation import CALIBRATION, EVALUATIONS
from sqale_grpo.settings.files import read_prompts
from sqale_grpo.settings.keys import Config
from sqale_grpo.settings.load import load_config, to_yaml
from sqale_grpo.settings.run_folder import CONFIG

STOPS = ("<|im_end|>", "<|endoftext|>")
RUN_CONFIG, PROMPTS, GENERATION = "training_config.yaml", "prompts.json", "generation_config.json"
# Files of the initial policy that are no weights: tokenizer, chat template, processors, model configuration.
COPIED = ("*.json", "*.txt", "*.jinja", "*.model")
NOT_COPIED = {INDEX, GENERATION, PROMPTS, "measured.json"}


@dataclass(frozen=True)
class ExportedRun:
    """What is exported: a checkpoint, its run's folder and configuration, and the folder of the initial policy."""

    checkpoint: Path
    run: Path
    config: Config
    base: Path


def find_source(path: Path, report: Callable[[str], None]) -> ExportedRun:
    """The checkpoint that ``path`` means: a run's folder (its newest whole checkpoint) or a checkpoint in one.

    ConfigError for a folder that is neither, and where the initial policy is not at hand.
    """
    checkpoint, run, config = find_checkpoint(path)
    return ExportedRun(checkpoint, run, config, base_folder(config, report))


def find_checkpoint(path: Path) -> tuple[Path, Path, Config]:
    """The checkpoint that ``path`` means, its run's folder and configuration."""
    if not path.is_dir():
        raise ConfigError(f"there is no folder {path}; name a run's folder or one of its checkpoints")
    checkpoint = resolve_policy(path)
    run = path if (path / CONFIG).is_file() else path.parent
    if not (run / CONFIG).is_file():
        raise ConfigError(f"{path} belongs to no run: neither it nor the folder above holds {CONFIG}")
    return Path(checkpoint), run, load_config([run / CONFIG])


def base_folder(config: Config, report: Callable[[str], None]) -> Path:
    """Folder of the run's initial policy; one on the Hub is downloaded, or found in the cache."""
    path = config.model.path
    if path == DEMO:
        return demo_policy_folder()
    if Path(path).is_dir():
        return Path(path)
    from huggingface_hub import snapshot_download

    report(f"fetching {path}, whose vision tower and other untrained tensors the export takes over")
    try:
        return Path(snapshot_download(path, allow_patterns=["*.safetensors", *COPIED]))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"the initial policy {path} is neither a folder nor at hand from the Hub ({first_line(error)}); its "
            "untrained tensors are needed"
        ) from error


def export_run(
    path: Path, out: Path, report: Callable[[str], None], dtype: str | None = None, verified: bool = True
) -> Path:
    """Write the export of ``path`` (as of ``find_source``) to ``out``, which must not be there yet; returns it.

    ``dtype``: ``bfloat16`` or ``float32`` for all tensors that were trained; None: as in the initial policy.
    ``verified``: load what was written and play one episode with its own ``sqale_agent.py``, before the folder gets
    its name. ConfigError for anything that cannot be exported.
    """
    if out.exists():
        raise ConfigError(f"{out} exists already; name another folder with --out, or remove it")
    source = find_source(path, report)
    name_left(out, report)
    with whole_folder(out) as partial:
        fill(partial, source, report, dtype)
        if verified:
            verify(partial, report)
    return out


def name_left(out: Path, report: Callable[[str], None]) -> None:
    """Say what exports beside ``out`` left that were stopped half way; the one of ``out`` itself is removed."""
    for left in sorted(path for path in out.parent.glob(f"*{PARTIAL}") if path.is_dir()):
        size = sum(file.stat().st_size for file in left.rglob("*") if file.is_file()) / 1e6
        if left == partial_path(out):
            shutil.rmtree(left)
            report(f"removed {left}, {size:,.1f} MB, which an export left that was stopped")
        else:
            report(f"{left}, {size:,.1f} MB, is left of an export that was stopped, unless one is under way: remove it")


def fill(out: Path, source: ExportedRun, report: Callable[[str], None], dtype: str | None) -> None:
    """Write everything that belongs to an export into the folder ``out``."""
    prompts = read_prompts(source.config.env.prompts)
    report(f"weights: {source.checkpoint} in the layout of {source.base}")
    with whole_weights(source) as trained:
        weights = export_weights(
            source.base,
            trained,
            out,
            vision_trained=not source.config.model.freeze_vision,
            dtype=None if dtype is None else getattr(torch, dtype),
        )
    report(
        f"weights: {weights.trained} tensors from the checkpoint, {weights.kept} from the initial policy, "
        f"{weights.parameters:,} parameters"
    )
    copy_files(source.base, out)
    if dtype is not None:
        set_dtype(out, dtype)
    write_generation_config(source, out)
    frame = chat_frame(AutoTokenizer.from_pretrained(out), source.config.model.enable_thinking)
    sure = None
    if (file := calibration_of(source.run, source.checkpoint)) is not None:
        shutil.copyfile(file, out / CALIBRATION)
        sure = json.loads(file.read_text(encoding="utf-8"))["threshold"]
        report(f"sure: {sure:.0%} of several candidates must agree, as {file} calibrated it")
    write_agent(out / NAME, prompts, run_settings(source.config, text_frame(frame), sure))
    write_prompts(prompts, out / PROMPTS)
    (out / RUN_CONFIG).write_text(run_config_text(source.checkpoint, source.config), encoding="utf-8")
    shutil.copy(ROOT / "LICENSE", out / "LICENSE")
    write_card(out, source.run, source.checkpoint, source.config, weights)


def is_export(folder: Path, path: Path) -> bool:
    """Whether ``folder`` is a finished export (it gets its name last). ConfigError where it is not one of ``path``."""
    if not ((folder / NAME).is_file() and (folder / RUN_CONFIG).is_file()):
        return False
    checkpoint, _, config = find_checkpoint(path)
    if (folder / RUN_CONFIG).read_text(encoding="utf-8") != run_config_text(checkpoint, config):
        raise ConfigError(f"{folder} holds another export than that of {checkpoint}; name another folder with --out")
    return True


def run_config_text(checkpoint: Path, config: Config) -> str:
    """The run's settings as the export holds them, under the checkpoint's name."""
    return f"# {config.name}, {checkpoint.name}\n{to_yaml(config)}"


@contextmanager
def whole_weights(source: ExportedRun) -> Iterator[Path]:
    """A folder with the checkpoint's whole weights: itself, or one in which adapters are merged into their base."""
    if not is_adapter(source.checkpoint):
        yield source.checkpoint
        return
    with tempfile.TemporaryDirectory(prefix="sqale-merged-") as folder:
        load_policy(source.config.model, source.checkpoint).save_pretrained(folder)
        yield Path(folder)


def copy_files(base: Path, out: Path) -> None:
    """Tokenizer, chat template, processors and model configuration, byte for byte: training changes none of them."""
    for file in sorted({file for pattern in COPIED for file in base.glob(pattern)}):
        if file.name not in NOT_COPIED:
            shutil.copyfile(file, out / file.name)


def set_dtype(out: Path, dtype: str) -> None:
    """Name the trained tensors' number format where loaders look for it: they would round to the initial policy's."""
    file = out / "config.json"
    config = json.loads(file.read_text(encoding="utf-8"))
    for section in (config, config.get("text_config") or {}):
        section.pop("torch_dtype", None)
        section["dtype"] = dtype
    file.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def write_generation_config(source: ExportedRun, out: Path) -> None:
    """The initial policy's, with both stop tokens and the evaluation's sampling."""
    file, section = source.base / GENERATION, source.config.evaluate
    values = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    tokenizer = AutoTokenizer.from_pretrained(source.base)
    known = tokenizer.get_vocab()
    values["eos_token_id"] = [known[stop] for stop in STOPS if stop in known] or [tokenizer.eos_token_id]
    values |= {"pad_token_id": tokenizer.pad_token_id, "do_sample": section.temperature > 0}
    values |= {"temperature": section.temperature, "top_p": section.top_p, "top_k": section.top_k}
    (out / GENERATION).write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")


def calibration_of(run: Path, checkpoint: Path) -> Path | None:
    """The calibration of an evaluation of this checkpoint, the one of most questions; None where there is none."""
    found = []
    for file in sorted(run.glob(f"{EVALUATIONS}/*/{CALIBRATION}")):
        summary = json.loads((file.parent / "summary.json").read_text(encoding="utf-8"))
        if Path(summary["model"]).name == checkpoint.name:
            found.append((summary["n"], file))
    return max(found)[1] if found else None


def run_settings(config: Config, frame: TextFrame | None = None, sure: float | None = None) -> Settings:
    """What the agent's episodes are bounded by: the run's environment, its evaluation's sampling and query time.

    ``frame``: the model's chat template as text; ``sure``: the calibrated share of agreement.
    """
    env, sampling = config.env, config.evaluate.sampling()
    limits = replace(env.query_limits(), seconds=config.evaluate.query_seconds)
    return Settings(env.episode_limits(), limits, sampling, config.model.enable_thinking, frame, sure)


def write_prompts(prompts: Prompts, file: Path) -> None:
    """The run's prompts as a file that ``--prompts`` and ``env.prompts`` take."""
    file.write_text(json.dumps(asdict(prompts), ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
