"""The identity of a figure: all that decides it beside what answered, and a digest of that.

Two evaluations are one measurement where their identities agree in all but the draw. The draw is the seed and what
follows from it: which questions are asked. Policies of several training seeds may each have their own; with one seed
the questions, and the data that they are asked of, must be the same.

An identity tells nothing of the policy (the model, its backend and number format): that is what a figure is about.
``data`` covers the questions' texts and gold queries, the sizes of gold results and of databases; a cell that changed
and left all counts as they were does not show in it.
"""

import hashlib
import json
import re
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sqale_grpo.corpus import PreparedCorpus, reasons
from sqale_grpo.corpus.prepared import read_marker
from sqale_grpo.settings.evaluation import EvaluationConfig
from sqale_grpo.settings.files import read_prompts
from sqale_grpo.settings.load import flatten

IDENTITY = "identity.json"
HARNESS = 1  # a change of tools, scoring or verdicts that moves figures makes it another
DIGEST_BYTES = 6
# What answers, where it runs and lies, how its work is cut, and what ``identity`` has in another form.
NOT_OF_IT = re.compile(
    r"name|output|model|parameters|backend|group|batch|local\..*|server\..*"
    r"|corpus\.(source|prepared)|env\.(workers|prompts)|reward\.gold_seconds"
)
OF_THE_DRAW = ("seed", "question_ids", "data")
COLUMNS = ("question_id", "db_id", "phrasings", "evidence", "gold_sql", "n_rows", "unstable")
NOT_MISSING = (reasons.IMPOSSIBLE, reasons.DUPLICATE)  # these have no gold query, or are there
MARKED_SHARE = 0.01


def identity(
    config: EvaluationConfig, corpus: PreparedCorpus, chosen: Sequence[int], facts: Mapping[str, Any]
) -> dict[str, Any]:
    """All that decides the evaluation's figures, by dotted key; ``chosen`` are the questions asked, by number.

    ``facts``: what the backend says of itself: whether the prompt is the raw one, what a server does not take, and its
    context where that is shorter than an episode.
    """
    keys = {name: value for name, value in flatten(config).items() if not NOT_OF_IT.fullmatch(name)}
    if config.schema != "sampled":
        keys = {name: value for name, value in keys.items() if not name.startswith("sampler.")}
    if config.corpus.name != "demo":
        keys = {name: value for name, value in keys.items() if not name.startswith("corpus.demo_")}
    summary = corpus.summary
    return {
        "harness": HARNESS,
        **keys,
        "prompts": digest(asdict(read_prompts(config.env.prompts))),
        "asked_over": "chat" if facts.get("api") == "chat" else "raw prompt",
        "not_sent": sorted(facts.get("not_sent") or ()),
        **({"context_tokens": facts["context_tokens"]} if "context_tokens" in facts else {}),
        "sqlite": sqlite3.sqlite_version,
        "sqlite_of_preparation": (read_marker(corpus.directory) or {}).get("sqlite"),
        "left_out": {"read": summary["read"], "kept": summary["kept"], **summary["dropped"]},
        "question_ids": digest(_column(corpus, "question_id", chosen)),
        "data": _data_digest(corpus, chosen),
    }


def digest(value: Any) -> str:
    """A short digest of a value that JSON can hold: equal on every machine for equal values."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=True)
    return hashlib.blake2b(text.encode(), digest_size=DIGEST_BYTES).hexdigest()


def digest_of_all(identities: Iterable[Mapping[str, Any]]) -> str:
    """The digest of a figure over several evaluations: that of their identity, or of all where draws differ."""
    digests = sorted({digest(each) for each in identities})
    return digests[0] if len(digests) == 1 else digest(digests) if digests else ""


def different_keys(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    """The keys in which two identities are no one measurement, sorted; what follows from another seed is no such key.

    An identity that was made of a configuration alone (``of_config``) lacks keys: those are not compared.
    """
    whole = "harness" in first and "harness" in second
    names = first.keys() | second.keys() if whole else first.keys() & second.keys()
    free = OF_THE_DRAW if first.get("seed") != second.get("seed") else ()
    return sorted(name for name in names if name not in free and first.get(name) != second.get(name))


def of_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """What the file of a configuration says of an identity that nobody wrote down (an earlier version's evaluation)."""
    leaves = dict(_leaves(config))
    return {name: value for name, value in leaves.items() if not NOT_OF_IT.fullmatch(name)}


def told(identities: Sequence[Mapping[str, Any]], names: Sequence[str]) -> str:
    """Keys and their different values, for a sentence: ``corpus.evidence (true, false)``."""
    values = {name: dict.fromkeys(json.dumps(each.get(name)) for each in identities) for name in names}
    return "; ".join(f"{name} ({', '.join(found)})" for name, found in values.items())


def missing(left_out: Mapping[str, int]) -> tuple[float, str]:
    """The share of a benchmark's questions that no evaluation can ask, and why, as ``3 of 90: 2 no gold SQL, ...``.

    ``left_out``: the identity's. Questions without an answer in their benchmark do not count.
    """
    lost = {why: n for why, n in left_out.items() if why not in ("read", "kept", *NOT_MISSING) and n}
    whole = left_out.get("read", 0) - sum(left_out.get(why, 0) for why in NOT_MISSING)
    if not lost or whole <= 0:
        return 0.0, ""
    number = sum(lost.values())
    return number / whole, f"{number:,} of {whole:,}: {', '.join(f'{n:,} {why}' for why, n in lost.items())}"


def read_identity(folder: Path) -> dict[str, Any] | None:
    """The identity of the evaluation in a folder, None where it has none. Raises ValueError for a broken file."""
    try:
        return json.loads((folder / IDENTITY).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None


def _leaves(values: Mapping[str, Any], above: str = "") -> Iterable[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def _column(corpus: PreparedCorpus, name: str, chosen: Sequence[int]) -> list[Any]:
    values = corpus.column(name)
    return sorted(values[index] for index in chosen) if name == "question_id" else [values[index] for index in chosen]


def _data_digest(corpus: PreparedCorpus, chosen: Sequence[int]) -> str:
    columns = [corpus.column(name) for name in COLUMNS]
    rows = sorted([column[index] for column in columns] for index in chosen)
    asked = {row[COLUMNS.index("db_id")] for row in rows}
    sizes = [
        [each["db_id"], each["tables"], each["foreign_keys"], each["rows"]]
        for each in corpus.databases()
        if each["db_id"] in asked
    ]
    return digest([rows, sorted(sizes)])
