"""The page: everything that a report shows, in one file that loads nothing.

Texts of models and databases are untrusted. They reach the page as packed JSON, are put into it as text nodes only, and
the page's policy allows no script but its own, by hash, and no request.

The report as a file.
"""

import base64
import hashlib
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup

from sqale_grpo.env.errors import UserError
from sqale_grpo.env.files import write_whole
from sqale_grpo.report.alarms import alarms
from sqale_grpo.report.charts import chart_data
from sqale_grpo.report.counts import TIERS, CountReader, FileCounts
from sqale_grpo.report.curves import Curves, is_papers_run, run_curves
from sqale_grpo.report.databases import Databases
from sqale_grpo.report.episodes import PackedGroup, choose_groups, pack, pack_groups, read_groups
from sqale_grpo.report.evaluations import table
from sqale_grpo.report.folders import EvaluationFolder, ReportError, RunFolder, open_folders
from sqale_grpo.settings.corpora import prepared_folder, split_folder
from sqale_grpo.settings.keys import Config

ASSETS = Path(__file__).parent / "assets"
SCRIPTS = ("text.js", "charts.js", "drawing.js", "episode.js", "browser.js", "page.js")
RUN_COLOURS = 12  # of page.css; a thirteenth run has the first one's
GROUPS = 480  # of a page; a run's share is what evaluations and other runs leave
EVALUATION_GROUPS = 60  # of each evaluation beside a run, together no more than half of the page
QUERY_SECONDS = 30.0  # that a page spends on queries at most, except for those that run at its end
EPISODE_BYTES = 18_000_000  # of all packed groups; with its index a page stays under 30 MB


@dataclass(frozen=True)
class ShownFolder:
    """One run or evaluation as the page's browser shows it."""

    name: str
    folder: RunFolder | EvaluationFolder
    counts: list[FileCounts]
    databases: Databases

    @property
    def episodes(self) -> int:
        """All episodes in its files."""
        return sum(count.episodes for count in self.counts)


class Page:
    """Renders reports; what it has read and run is kept, so that a run that goes on is rendered anew quickly."""

    def __init__(self, groups: int = GROUPS, seed: int = 0) -> None:
        """``groups``: most groups of episodes that a page holds; ``seed``: of their choice."""
        self.groups = groups
        self.seed = seed
        self._reader = CountReader()
        self._databases: dict[str, Databases] = {}

    def render(self, folders: Sequence[RunFolder | EvaluationFolder], version: str = "") -> str:
        """The page as HTML. ``version``: set where a server watches the folders, so that the page asks for news."""
        runs = [folder for folder in folders if isinstance(folder, RunFolder)]
        evaluations = [inner for run in runs for inner in run.evaluations]
        shown = {evaluation.path for evaluation in evaluations}
        evaluations += [f for f in folders if isinstance(f, EvaluationFolder) and f.path not in shown]
        everything: list[RunFolder | EvaluationFolder] = [*runs, *evaluations]
        notes = [(folder.name, note) for folder in everything for note in folder.notes]
        sources = []
        for folder in everything:
            counts, damaged = self._reader.counts(folder.files)
            notes += [(folder.name, note) for note in damaged]
            sources.append(ShownFolder(folder.name, folder, counts, self._database(folder)))
        curves = [run_curves(run, source.counts) for run, source in zip(runs, sources, strict=False)]
        packed, unread = self._pack(sources)
        notes += unread
        data = {
            "tiers": TIERS,
            "colours": RUN_COLOURS,
            "version": version,
            "runs": [{"name": run.name, "updates": c.updates} for run, c in zip(runs, curves, strict=True)],
            "charts": chart_data(
                [(run.name, c, is_papers_run(run.config)) for run, c in zip(runs, curves, strict=True)]
            ),
            "sources": [{"name": source.name, "training": isinstance(source.folder, RunFolder)} for source in sources],
            "groups": [group.index for group in packed],
        }
        return _fill(
            title=", ".join(folder.name for folder in folders),
            runs=[_card(run, c) for run, c in zip(runs, curves, strict=True)],
            notes=notes,
            alarms=[
                (run.name, text)
                for run, c in zip(runs, curves, strict=True)
                for text in alarms(c, run.config.train.importance_cap if run.config else 3.0)
            ],
            evaluations=[e.name for e in evaluations],
            rows=table(evaluations),
            samples=[_sample_words(source, number, packed) for number, source in enumerate(sources)],
            charts=data["charts"],
            colours=RUN_COLOURS,
            watched=bool(version),
            data=pack(data),
            groups=[group.text for group in packed],
            made=datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z"),
        )

    def _pack(self, sources: Sequence[ShownFolder]) -> tuple[list[PackedGroup], list[tuple[str, str]]]:
        """The sources' groups within the page's limits; what is over them is left out from the least wanted on.

        And notes on files that cannot be read, each with its source's name.
        """
        shares = group_shares(self.groups, [isinstance(source.folder, RunFolder) for source in sources])
        packed: list[PackedGroup] = []
        notes: list[tuple[str, str]] = []
        started = time.monotonic()
        for number, (source, share) in enumerate(zip(sources, shares, strict=True)):
            groups = [group for count in source.counts for group in count.groups]
            read, unread = read_groups(choose_groups(groups, share, self.seed))
            notes += [(source.name, note) for note in unread]
            until = started + QUERY_SECONDS * (number + 1) / len(sources)
            room, kept = EPISODE_BYTES // len(sources), []
            for group, text in zip(read, pack_groups(read, source.databases, number, until), strict=True):
                room -= len(text.text)
                if room < 0:
                    break
                kept.append((group, text))
            kept.sort(key=lambda pair: (pair[0].update, pair[0].file, pair[0].first))
            packed += [text for _, text in kept]
        return packed, notes

    def _database(self, folder: RunFolder | EvaluationFolder) -> Databases:
        where = _corpus(folder)
        key = str(where)
        if key not in self._databases:
            self._databases[key] = Databases(where)
        return self._databases[key]


def group_shares(groups: int, training: Sequence[bool]) -> list[int]:
    """How many of a page's ``groups`` each source may show, at least one; ``training``: whether it is a run's."""
    runs = sum(training)
    evaluations = len(training) - runs
    each = groups // max(1, evaluations)
    if runs:
        each = min(EVALUATION_GROUPS, each // 2)
    each = max(1, each)
    left = max(1, (groups - evaluations * each) // max(1, runs))
    return [left if is_run else each for is_run in training]


def _corpus(folder: RunFolder | EvaluationFolder) -> Path | None:
    """Where the databases of a run's or an evaluation's questions lie, as far as its configuration says."""
    if folder.config is None:
        return None
    corpus, config = folder.config.corpus, folder.config
    try:
        if isinstance(config, Config):
            return prepared_folder(config, corpus.split)
        return split_folder(corpus, corpus.split, config.env.query_seconds, config.reward.counter_databases, config.env)
    except UserError:  # a folder of one's own that has moved since: the page does without the schemas
        return None


def _card(run: RunFolder, curves: Curves) -> dict[str, Any]:
    """A run in a few facts and figures, for the head of the page."""
    width = max(1, len(curves.updates) // 10)

    def last(name: str, form: str) -> str:
        known = [value for value in curves.get(name)[-width:] if value is not None]
        return form.format(sum(known) / len(known)) if known else "–"

    facts = []
    if run.config is not None:
        config, train = run.config, run.config.train
        facts = [
            ("Model", config.model.path),
            ("Corpus", f"{config.corpus.name}, {config.corpus.split}"),
            ("Batch", f"{train.questions_per_update} questions × {train.candidates} candidates"),
            ("Learning rate", f"{train.learning_rate:g}, {train.lr_scheduler}"),
            ("KL", f"{train.beta:g}, re-anchored every {train.anchor_updates} updates"),
            ("Rollouts", config.rollout.backend),
            ("Seed", str(config.seed)),
        ]
    of = f" of {run.config.train.updates:,}" if run.config else ""
    return {
        "name": run.name,
        "over": f"the last {width} updates" if width > 1 else "the last update",
        "facts": facts,
        "papers": is_papers_run(run.config),
        "figures": [
            ("Updates", f"{len(curves.updates):,}{of}"),
            ("Episodes", f"{curves.episodes:,}"),
            ("Equivalent", last("equivalent", "{:.0%}")),
            ("Executable, wrong", last("executable", "{:.0%}")),
            ("Invalid", last("invalid", "{:.0%}")),
            ("Reward", last("reward", "{:.2f}")),
            ("Tool calls", last("tool_calls", "{:.1f}")),
            ("Seconds an update", last("seconds/update", "{:.1f}")),
        ],
    }


def _sample_words(source: ShownFolder, number: int, packed: Sequence[PackedGroup]) -> str:
    """How many of a source's episodes the page holds, in a sentence."""
    groups = sum(len(count.groups) for count in source.counts)
    shown = [group.index for group in packed if group.index["source"] == number]
    episodes = sum(len(index["episodes"]) for index in shown)
    if episodes == source.episodes:
        return f"{source.name}: all {episodes:,} episodes."
    return (
        f"{source.name}: {episodes:,} of {source.episodes:,} episodes, as {len(shown):,} of {groups:,} whole groups, "
        "drawn by a fixed seed and spread over updates and outcomes. Counts and curves are over all episodes."
    )


def _fill(**values: Any) -> str:
    environment = Environment(loader=FileSystemLoader(ASSETS), autoescape=True, trim_blocks=True, lstrip_blocks=True)
    own = "\n".join(["(() => {", '"use strict";', *map(_asset, SCRIPTS), "})();"])
    scripts = [_asset("uplot/uPlot.iife.min.js"), own]
    hashes = " ".join(f"'sha256-{_sha256(script)}'" for script in scripts)
    return environment.get_template("page.html").render(
        style=Markup(_asset("uplot/uPlot.min.css") + _asset("page.css")),
        scripts=[Markup(script) for script in scripts],
        hashes=Markup(hashes),
        **values,
    )


def _sha256(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


@cache
def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")


def write_report(runs: Sequence[Path], out: Path, groups: int = GROUPS) -> Path:
    """Write the page of ``runs`` to ``out`` and return it; ``groups``: most groups of episodes that it holds.

    Raises ReportError for a folder that is no run's, where there is nothing to show yet, and where ``out`` cannot be
    written.
    """
    folders = open_folders(runs)
    if all(not folder.files and not (isinstance(folder, RunFolder) and folder.metrics) for folder in folders):
        names = ", ".join(str(folder.path) for folder in folders)
        raise ReportError(f"{names}: the first update is not finished yet; --watch shows it as soon as it is")
    if os.path.isdir(out):  # False for a name that no file can have
        raise ReportError(f"{out} is a folder: name a file, as --out {out / 'report.html'}")
    html = Page(groups).render(folders)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_whole(out, html.encode("utf-8", errors="replace"))
    except OSError as error:
        raise ReportError(f"{out} cannot be written ({error.strerror}): name another file with --out") from error
    return out
