"""The prepared corpora of a run or an evaluation: prepared when they are not yet, opened otherwise."""

import hashlib
import json
from pathlib import Path
from typing import Any

from sqale_grpo.corpus import PreparedCorpus, open_prepared, prepare
from sqale_grpo.corpus.demo import DemoShape
from sqale_grpo.corpus.files import fingerprint
from sqale_grpo.corpus.preparation import EVALUATION_SECONDS
from sqale_grpo.corpus.prepared import MARKER
from sqale_grpo.corpus.sources import check_demo_source, open_source
from sqale_grpo.env.limits import Limits
from sqale_grpo.settings.check import ConfigError
from sqale_grpo.settings.draws import draw_plan, drawn_folder
from sqale_grpo.settings.keys import Config
from sqale_grpo.settings.sections import CorpusConfig, EnvConfig


def prepared_folder(config: Config, split: str) -> Path:
    """Where a run's split lies: whole, or only what the run draws, where that alone is there."""
    whole = split_folder(config.corpus, split, gold_limit(config, split), config.copies(split), config.env)
    if split != config.corpus.split or (whole / MARKER).exists():
        return whole
    drawn = drawn_folder(whole, config)
    return drawn if (drawn / MARKER).exists() else whole


def gold_limit(config: Config, split: str) -> float:
    """Seconds that a gold query may take in preparation: what a policy's query has, which else could never match it.

    At scoring it may take longer (``reward.gold_seconds``), since a busy machine must not end a run.
    """
    seconds = config.env.query_seconds if split == config.corpus.split else config.evaluate.query_seconds
    return _seconds(config.corpus, seconds)


def prepare_command(config: Config, split: str) -> str:
    """The command that prepares the split where ``open_corpus`` looks for it."""
    return split_command(config.corpus, split, gold_limit(config, split), config.copies(split), config.env)


def open_corpus(config: Config, split: str) -> PreparedCorpus:
    """The prepared ``split`` of the run's corpus; prepares it from ``corpus.source`` where that is given.

    ConfigError where there is neither a prepared corpus nor a source.
    """
    folder = prepared_folder(config, split)
    whole = split_folder(config.corpus, split, gold_limit(config, split), config.copies(split), config.env)
    if folder != whole:
        return prepare_drawn(config) if config.corpus.source is not None else open_prepared(folder)
    others = [path for path in whole.parent.glob(f"{whole.name}-drawn-*") if (path / MARKER).exists()]
    if split == config.corpus.split and others and not (whole / MARKER).exists():
        if config.corpus.source is not None:
            return prepare_drawn(config)
        raise ConfigError(
            f"{others[0]} holds what another run draws (of another seed, schedule or number of updates): prepare this "
            "one's with `sqale-grpo corpus prepare --source PATH --for CONFIG...`"
        )
    return open_split(config.corpus, split, gold_limit(config, split), config.env, config.copies(split))


def prepare_drawn(
    config: Config, source: str | Path | None = None, out: str | Path | None = None, workers: int | None = None
) -> PreparedCorpus:
    """Prepare the questions that the run draws, and no others, where the run looks for them (or in ``out``).

    ``source`` stands in for ``corpus.source``, which then need not be given.
    """
    corpus, split = config.corpus, config.corpus.split
    seconds, copies = gold_limit(config, split), config.copies(split)
    return prepare(
        corpus.name,
        source or corpus.source,
        out or drawn_folder(split_folder(corpus, split, seconds, copies, config.env), config),
        split=split,
        limit=corpus.limit,
        workers=workers,
        seconds=seconds,
        max_rows=config.env.max_rows,
        steps=config.env.query_steps,
        counter_databases=copies,
        shape=corpus.shape(),
        draws=draw_plan(config),
    )


def split_folder(
    corpus: CorpusConfig, split: str, seconds: float, copies: int = 0, env: EnvConfig | None = None
) -> Path:
    """Where a split lies below ``corpus.prepared``: a folder for each source, split, limit on golds and demo shape.

    ``copies``: counter-databases of a question; ``env``: what it allows a query, which its golds have too. Each makes
    another folder, and so does the content of a source that is a folder: an edited or completed one is prepared anew.
    Raises CorpusError where a source of one's own is not there, and where the demo would be written into somebody's
    folder.
    """
    suffix = f"-{copies}-copies" if copies else ""
    if corpus.name == "demo" and corpus.source is not None:
        check_demo_source(corpus.source)
    shape = corpus.shape()
    shaped = [] if shape in (None, DemoShape()) else [str(shape)]
    bounds = _bounds(corpus, env)
    if corpus.source is None and corpus.limit is None and not shaped:
        named = "".join(f"-{value}-{name.removeprefix('max_')}" for name, value in bounds.items())
        return Path(corpus.prepared) / f"{corpus.name}-{split}{named}{suffix}"
    where: list[Any] = _content(corpus, split) or [corpus.source]
    inputs = [*where, corpus.limit, _seconds(corpus, seconds) if corpus.source else None]
    more = [*shaped, *([bounds] if bounds else [])]
    digest = hashlib.blake2b(json.dumps([*inputs, *more]).encode(), digest_size=4).hexdigest()
    return Path(corpus.prepared) / f"{corpus.name}-{split}-{digest}{suffix}"


def _content(corpus: CorpusConfig, split: str) -> list[str]:
    """The place of a source that is a folder and a digest of its files; nothing for any other source."""
    if corpus.source is None or corpus.name == "demo":
        return []
    places = [Path(part).expanduser() for part in corpus.source.split(",")]  # SQaLe's may be two folders
    if corpus.name != "jsonl" and not all(place.is_dir() for place in places):
        return []
    opened = open_source(corpus.name, corpus.source, split, Path(), 0)
    return [*(str(place.resolve()) for place in places), fingerprint(opened.files, opened.identity)]


def _bounds(corpus: CorpusConfig, env: EnvConfig | None) -> dict[str, int]:
    """What the golds may take where it is not the usual: it decides which are kept. Any is right for the demo."""
    if env is None or corpus.name == "demo":
        return {}
    usual, allowed = Limits(), {"max_rows": env.max_rows, "steps": env.query_steps}
    differ = {"max_rows": env.max_rows != usual.rows, "steps": env.query_steps != usual.steps}
    return {name: value for name, value in allowed.items() if differ[name]}


def split_command(
    corpus: CorpusConfig, split: str, seconds: float, copies: int = 0, env: EnvConfig | None = None
) -> str:
    """The command that prepares the split where ``open_split`` looks for it."""
    more = "" if corpus.limit is None else f" --limit {corpus.limit}"
    more += "".join(f" --{name.replace('_', '-')} {value}" for name, value in _bounds(corpus, env).items())
    more += f" --counter-databases {copies}" if copies else ""
    folder = split_folder(corpus, split, seconds, copies, env)
    return f"sqale-grpo corpus prepare --corpus {corpus.name} --source PATH --split {split}{more} --out {folder}"


def open_split(corpus: CorpusConfig, split: str, seconds: float, env: EnvConfig, copies: int = 0) -> PreparedCorpus:
    """The same as ``open_corpus`` for any configuration; ``seconds`` and what ``env`` says limit the gold queries.

    ``copies``: counter-databases of a question.
    """
    folder = split_folder(corpus, split, seconds, copies, env)
    bounds = _bounds(corpus, env)
    if corpus.name == "demo" or corpus.source is not None:
        return prepare(
            corpus.name,
            corpus.source,
            folder,
            split=split,
            limit=corpus.limit,
            seconds=_seconds(corpus, seconds),
            max_rows=bounds.get("max_rows"),
            steps=bounds.get("steps"),
            counter_databases=copies,
            shape=corpus.shape(),
        )
    check_prepared(corpus, split, seconds, copies, env)
    return open_prepared(folder)


def check_run_prepared(config: Config) -> None:
    """ConfigError where a run's questions are neither prepared, whole or as it draws them, nor can be.

    The held-out ones too, where it plays them.
    """
    split, held = config.corpus.split, config.evaluate.split
    if config.evaluate.every and held != split:
        check_prepared(config.corpus, held, gold_limit(config, held), config.copies(held), config.env)
    if not (prepared_folder(config, split) / MARKER).exists():
        check_prepared(config.corpus, split, gold_limit(config, split), config.copies(split), config.env)


def check_prepared(
    corpus: CorpusConfig, split: str, seconds: float, copies: int = 0, env: EnvConfig | None = None
) -> None:
    """ConfigError where the split is neither prepared nor can be: what takes no time, to be told before what does."""
    if corpus.name == "demo" or corpus.source is not None:
        return
    folder = split_folder(corpus, split, seconds, copies, env)
    if (folder / MARKER).exists():
        return
    command = split_command(corpus, split, seconds, copies, env)
    raise ConfigError(f"{folder} holds no prepared corpus; set corpus.source=PATH, or run `{command}`")


def _seconds(corpus: CorpusConfig, seconds: float) -> float:
    # Any is right for the demo: its gold queries take microseconds.
    return EVALUATION_SECONDS if corpus.name == "demo" else seconds
