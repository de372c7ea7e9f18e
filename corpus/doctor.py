"""``sqale-grpo corpus doctor PATH``: which corpus a folder holds, and what of it is missing, broken or another version.

A layout is recognised by its loader: the folder opens and its first record has the loader's keys. Nothing is executed.
"""

import hashlib
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from sqale_grpo.corpus.ehrsql import DATABASES as EHRSQL_DATABASES
from sqale_grpo.corpus.json_stream import read_json_array
from sqale_grpo.corpus.question import CorpusError, Source
from sqale_grpo.corpus.sources import LOADERS
from sqale_grpo.env.connect import read_only_uri

SPLITS = ("train", "dev", "mini_dev", "test")
NAMED = 5  # of a long list
# Published numbers of questions, and what has them.
COUNTS = {
    ("bird", "train"): {9_428: "BIRD train", 6_601: "BIRD train-filtered"},
    ("bird", "dev"): {1_534: "BIRD dev"},
    ("bird", "mini_dev"): {500: "BIRD mini-dev"},
    ("spider", "train"): {8_659: "Spider train"},
    ("spider", "dev"): {1_034: "Spider dev"},
    ("spider", "test"): {2_147: "Spider test"},
    ("ehrsql", "dev"): {2_239: "EHRSQL valid"},
    ("ehrsql", "test"): {3_578: "EHRSQL test"},
    ("synsql", "train"): {2_544_390: "SynSQL-2.5M"},
    ("sqale", "train"): {169_277: "SQaLe 2 train"},
    ("sqale", "test"): {8_100: "SQaLe 2 test"},
}
# Of EHRSQL, whose releases differ in words and in gold queries and not in numbers: a digest of a file's questions.
EHRSQL_VERSIONS = {
    **dict.fromkeys(("e3707389", "6e81d0c9", "706cc76b", "a2edb7c9"), "v1.5.1"),
    **dict.fromkeys(("cf3d3c89", "0f37c346", "151f3cf5", "ee9566cc"), "v1.5.1 of March 2026, before its last edits"),
    **dict.fromkeys(("39194e65", "218f92b9", "861373b6", "8a45da97"), "v1.5.0"),
    **dict.fromkeys(("7d3d9e26", "9610dab1", "9bafd370", "7b301174"), "the release of 2024"),
    "fc7492bb": "a release of 2022 or 2023",
}
NEWEST = "v1.5.1"


@dataclass(frozen=True)
class Diagnosis:
    """One split that a folder holds: what it is, and each ill of it with its remedy."""

    corpus: str
    split: str
    title: str
    ills: tuple[tuple[str, str], ...]


def examine(folder: Path) -> list[Diagnosis]:
    """Every split that ``folder`` holds. Raises CorpusError where it holds none."""
    found = []
    refused: dict[str, str] = {}
    for corpus, split in ((corpus, split) for corpus in LOADERS for split in SPLITS):
        try:
            source = LOADERS[corpus](folder, split)
            first = next(source.questions(), None)
        except CorpusError as error:
            refused.setdefault(corpus, str(error))
            continue
        if first is not None:
            found.append(_diagnose(corpus, split, source, folder))
    if not found:
        raise CorpusError(_unknown(folder, refused))
    return found


def _diagnose(corpus: str, split: str, source: Source, folder: Path) -> Diagnosis:
    by_database: Counter[str] = Counter()
    ids: Counter[str] = Counter()
    ills: list[tuple[str, str]] = []
    try:
        for question in source.questions():
            by_database[question.db_id] += 1
            ids[question.question_id] += 1
    except CorpusError as error:
        ills.append((str(error), "unpack or download the file again"))
    total = sum(by_database.values())
    known = COUNTS.get((corpus, split), {})
    title = f"{total:,} questions over {len(by_database):,} databases"
    if total in known:
        title = f"{known[total]}: {title}"
    elif known:
        usual = " or ".join(f"{number:,} ({name})" for number, name in known.items())
        ills.append(
            (f"{total:,} questions, and published are {usual}", "another version, or a part: download it again")
        )
    twice = [each for each, times in ids.items() if times > 1]
    if twice:
        ills.append((f"{len(twice):,} question ids come twice, such as {twice[0]}", "only the first of each is taken"))
    if corpus == "ehrsql":
        version, more = _ehrsql(source)
        title, ills = f"{title}, {version}", [*ills, *more]
    return Diagnosis(corpus, split, title, (*ills, *_databases(source, by_database)))


def _databases(source: Source, asked: Counter[str]) -> Iterator[tuple[str, str]]:
    """The databases that are missing or broken, with the questions that they cost."""
    # A schema of SQaLe is megabytes and there are thousands: they are counted and not kept.
    places = {db_id: recipe if isinstance(recipe, Path) else None for db_id, recipe in source.databases(asked.keys())}
    missing = [db_id for db_id in asked if db_id not in places]
    if missing:
        lost = sum(asked[db_id] for db_id in missing)
        named = ", ".join(map(repr, missing[:NAMED])) + (" …" if len(missing) > NAMED else "")
        yield (
            f"{len(missing):,} of {len(asked):,} databases are missing, and {lost:,} questions with them: {named}",
            f"put the first at {source.place(missing[0])}",
        )
    for db_id, path in places.items():
        ill = health(path) if path else ""
        if ill:
            yield f"{path} {ill}: {asked[db_id]:,} questions are lost", "unpack or download it again"


def health(path: Path) -> str:
    """What is wrong with a SQLite file, as far as a look at it tells; empty where nothing is."""
    size = path.stat().st_size
    if size == 0:
        return "is empty"
    with path.open("rb") as file:
        head = file.read(100)
    if head.startswith(b"version https://git-lfs"):
        return "is a Git LFS pointer (git lfs pull gets the file)"
    if not head.startswith(b"SQLite format 3\0"):
        return "is no SQLite file"
    page = int.from_bytes(head[16:18], "big")
    pages = int.from_bytes(head[28:32], "big")
    whole = (65_536 if page == 1 else page) * pages
    if head[24:28] == head[92:96] and size < whole:  # else an old SQLite wrote it, and the number of pages says nothing
        return f"is cut: {size:,} of {whole:,} bytes"
    try:
        with closing(sqlite3.connect(read_only_uri(path), uri=True)) as connection:
            (tables,) = connection.execute("SELECT count(*) FROM sqlite_master WHERE type = 'table'").fetchone()
    except sqlite3.Error as error:
        return f"cannot be read ({error})"
    return "" if tables else "has no tables"


def _ehrsql(source: Source) -> tuple[str, list[tuple[str, str]]]:
    """The version of its question files, and what that means."""
    files = {path.parent.name: path for path in source.files if path.suffix == ".json"}
    versions = {db_id: EHRSQL_VERSIONS.get(digest(path), "of no known version") for db_id, path in files.items()}
    ills = []
    absent = [db_id for db_id in EHRSQL_DATABASES if db_id not in files]
    if absent:
        ills.append((f"{absent[0]} is not here, and the benchmark is both", f"put its questions into {absent[0]}/"))
    if any(version != NEWEST for version in versions.values()):
        ills.append((f"the questions are not {NEWEST}", "figures of other versions do not compare: say which it is"))
    return ", ".join(f"{db_id} {version}" for db_id, version in versions.items()), ills


def digest(path: Path) -> str:
    """Of the questions' words, in order."""
    made = hashlib.blake2b(digest_size=4)
    for record in read_json_array(path):
        made.update(str(record.get("question", "")).encode() + b"\n")
    return made.hexdigest()


def _unknown(folder: Path, refused: dict[str, str]) -> str:
    """Why nothing was recognised: a known release that cannot be used, an archive that is packed, or all layouts."""
    if "is SQaLe 1" in refused.get("sqale", ""):
        return refused["sqale"]
    if folder.is_dir():
        if any(folder.rglob("mimic_iv")):
            return f"{folder} holds EHRSQL-2024, another benchmark than EHRSQL: its questions cannot be prepared"
        packed = sorted(folder.glob("*.zip"))
        if packed:
            return f"{folder} holds no corpus, but {packed[0].name}: unpack it there and ask again"
    return f"{folder} holds no corpus that is known ({', '.join(LOADERS)}): docs/corpora.md has their layouts"
