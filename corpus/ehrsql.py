"""EHRSQL over MIMIC-III and eICU: gold SQL with placeholders, and questions that nothing can answer.

The placeholders are resolved as the benchmark's own evaluation does it: ``current_time`` is a fixed moment (SQLite
would silently take the word for its own keyword), ``<vital>_lower`` and ``_upper`` are the ends of its normal
range, and ``strftime`` formats in ``%y`` and ``%j`` mean the year in four digits and the Julian day number. A
question does not state the first two, so they are its evidence here (our assumption).
"""

import re
from collections.abc import Iterator
from pathlib import Path

from sqale_grpo.corpus import reasons
from sqale_grpo.corpus.files import Places, candidates, located
from sqale_grpo.corpus.json_stream import read_json_array
from sqale_grpo.corpus.question import CorpusError, RawQuestion, Source, existing_folder, text_of
from sqale_grpo.reward.ehrsql import CURRENT_TIME, NORMAL_RANGES

SPLITS = {"train": "train", "dev": "valid", "valid": "valid", "test": "test"}
DATABASES = ("mimic_iii", "eicu")
_FORMAT = r"(?P<strftime>\bstrftime\s*\(\s*)(?P<format>'[^']*')"
_QUOTED = r"""'(?:[^']|'')*'|"(?:[^"]|"")*\""""
_VITAL = rf"\b(?P<vital>{'|'.join(NORMAL_RANGES)})_(?P<end>lower|upper)\b"
_PLACEHOLDER = re.compile(rf"{_FORMAT}|{_QUOTED}|(?P<now>\bcurrent_time\b)|{_VITAL}", re.IGNORECASE)


def open_source(source: str | Path | None, split: str) -> Source:
    """``source`` holds ``{mimic_iii,eicu}/{train,valid,test}.json``; one of the two is enough. Raises CorpusError.

    A database lies beside its questions (``mimic_iii/mimic_iii.sqlite``), in ``source`` or in ``databases/``.
    """
    folder = existing_folder(source, "ehrsql")
    if split not in SPLITS:
        raise CorpusError(f"EHRSQL has no split {split!r}: choose one of {', '.join(SPLITS)}")
    paths = {db_id: folder / db_id / f"{SPLITS[split]}.json" for db_id in DATABASES}
    present = {db_id: path for db_id, path in paths.items() if path.is_file()}
    if not present:
        raise CorpusError(f"no EHRSQL questions in {folder}: put them at {' and '.join(map(str, paths.values()))}")
    places = (folder, folder / "databases")
    return Source(
        questions=lambda: _questions(present),
        databases=lambda wanted: located(wanted, places),
        files=(*present.values(), *candidates(places)),
        place=Places(places).wanted_at,
    )


def resolve_placeholders(sql: str) -> str:
    """The query as the benchmark executes it; text in quotes stays as it is, except for the formats of ``strftime``."""

    def replace(match: re.Match[str]) -> str:
        if match["strftime"]:
            return match["strftime"] + match["format"].replace("%y", "%Y").replace("%j", "%J")
        if match["now"]:
            return f"'{CURRENT_TIME}'"
        if match["vital"]:
            return str(NORMAL_RANGES[match["vital"].lower()][match["end"].lower() == "upper"])
        return match[0]

    return _PLACEHOLDER.sub(replace, sql)


def _questions(paths: dict[str, Path]) -> Iterator[RawQuestion]:
    for db_id, path in paths.items():
        for number, record in enumerate(read_json_array(path)):
            where = f"{path}, record {number}"
            impossible = record.get("is_impossible") is True
            text = text_of(record, "question", where).strip()
            sql = text_of(record, "query", where, default="" if impossible else None)
            yield RawQuestion(
                question_id=f"ehrsql_{db_id}_{text_of(record, 'id', where, default='') or f'{path.stem}_{number}'}",
                db_id=text_of(record, "db_id", where, default=db_id) or db_id,
                phrasings=(text,) if text else (),
                gold_sql=resolve_placeholders(sql),
                evidence=_evidence(sql),
                dropped=reasons.IMPOSSIBLE if impossible else "",
            )


def _evidence(sql: str) -> str:
    lines = [f"The current time is {CURRENT_TIME}."]
    used = {match["vital"].lower() for match in _PLACEHOLDER.finditer(sql) if match["vital"]}
    for vital in (name for name in NORMAL_RANGES if name in used):
        low, high = NORMAL_RANGES[vital]
        lines.append(f"The normal range of {vital.replace('_', ' ')} is {low} to {high}.")
    return " ".join(lines)
