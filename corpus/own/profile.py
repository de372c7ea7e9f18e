"""What the tables of a database hold, as far as questions can be made of it: labels, categories, amounts, dates."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from sqale_grpo.corpus.own.values import sqlite_type
from sqale_grpo.corpus.own.wording import titles
from sqale_grpo.env.connect import read_only_uri
from sqale_grpo.env.schema import ForeignKey, SchemaGraph
from sqale_grpo.env.text import fold_name, quote_name

LOOKED = 20_000  # rows of a table that are looked at
CATEGORY_VALUES = 40
LONGEST_VALUE = 40  # characters of a value that a question can name
_ISO = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d.*)?", re.ASCII)
_LABELS = ("name", "title", "label", "full_name", "fullname", "description", "subject", "code", "email", "number")
# Numbers that nobody adds up.
_CODES = frozenset(
    re.findall(
        r"\w+",
        "year zip phone fax code postal number no nr lat lon latitude longitude version rank order position sort key",
    )
)


@dataclass(frozen=True)
class Facts:
    """A column: different values among the rows looked at, some of them, and whether any is missing."""

    name: str
    role: str  # key, label, category, amount, date, flag, text
    distinct: int
    values: tuple[object, ...]
    missing: bool
    title: str = ""  # the name in words


@dataclass(frozen=True)
class Profile:
    """A table or view with the facts on its columns."""

    name: str
    rows: int
    columns: tuple[Facts, ...]
    keys: tuple[ForeignKey, ...] = ()
    is_view: bool = False
    title: str = ""  # the name in words

    def of(self, *roles: str) -> list[Facts]:
        """Columns of these roles."""
        return [column for column in self.columns if column.role in roles]

    @property
    def label(self) -> Facts | None:
        """The column by which a person names a row."""
        return next(iter(self.of("label")), None)


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """A reading connection to a database of ours."""
    with closing(sqlite3.connect(read_only_uri(path), uri=True)) as connection:
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        yield connection


def profiles(path: Path) -> list[Profile]:
    """All tables and views that have rows."""
    graph = SchemaGraph.from_file(path)
    with opened(path) as connection:
        found = [_profile(connection, graph, name, False) for name in graph.tables]
        found += [_profile(connection, graph, name, True) for name in graph.views]
    kept = [each for each in found if each is not None and each.rows and each.columns]
    return [replace(each, title=title) for each, title in zip(kept, titles([each.name for each in kept]), strict=True)]


def _profile(connection: sqlite3.Connection, graph: SchemaGraph, name: str, is_view: bool) -> Profile | None:
    keys = () if is_view else tuple(key for key in graph.foreign_keys if key.child == name)
    keyed = {fold_name(column) for key in keys for column in key.columns}
    try:
        listed = connection.execute("SELECT name, type, pk FROM pragma_table_info(?)", (name,)).fetchall()
        (rows,) = connection.execute(
            f"SELECT count(*) FROM (SELECT 1 FROM {quote_name(name)} LIMIT {LOOKED * 50})"
        ).fetchone()
        columns = [
            _facts(connection, name, column, declared, bool(rank) or fold_name(column) in keyed, rows)
            for column, declared, rank in listed
        ]
    except sqlite3.Error:
        return None
    columns = [
        replace(each, title=title) for each, title in zip(columns, titles([each.name for each in columns]), strict=True)
    ]
    return Profile(name, rows, _one_label(columns), keys, is_view)


def _facts(connection: sqlite3.Connection, table: str, column: str, declared: str, is_key: bool, rows: int) -> Facts:
    name = quote_name(column)
    looked = f"(SELECT {name} AS v FROM {quote_name(table)} LIMIT {LOOKED})"
    distinct, known, looked_at = connection.execute(
        f"SELECT count(DISTINCT v), count(v), count(*) FROM {looked}"
    ).fetchone()
    values = tuple(
        value
        for (value,) in connection.execute(
            f"SELECT v FROM {looked} WHERE v IS NOT NULL GROUP BY v ORDER BY count(*) DESC, v LIMIT {CATEGORY_VALUES}"
        )
    )
    role = "key" if is_key or _is_id(column) else _role(column, declared, values, distinct, known)
    return Facts(column, role, distinct, values, known < looked_at)


def _is_id(column: str) -> bool:
    return re.search(r"(^|_)(id|ids|uuid|guid|key|pk|fk)$|[a-z]I[dD]$", column) is not None


def _role(column: str, declared: str, values: tuple[object, ...], distinct: int, known: int) -> str:
    if not known:
        return "text"
    kinds = {type(value) for value in values}
    if kinds <= {int, float}:
        if distinct <= 2:
            return "flag"
        words = re.split(r"[^a-z]+", re.sub(r"([a-z])([A-Z])", r"\1_\2", column).lower())
        return "text" if set(words) & _CODES else "amount"
    if kinds != {str}:
        return "text"
    texts = [value for value in values if isinstance(value, str)]
    if sqlite_type(declared or "text") in ("DATE", "DATETIME") or all(_ISO.fullmatch(text) for text in texts):
        return "date" if all(_ISO.fullmatch(text) for text in texts) else "text"
    if any(len(text) > LONGEST_VALUE or "\n" in text or not text.strip() for text in texts):
        return "text"
    if distinct <= CATEGORY_VALUES and distinct * 2 <= known and distinct > 1:
        return "category"
    return "label" if distinct >= 0.9 * known or fold_name(column) in _LABELS else "text"


def _one_label(columns: list[Facts]) -> tuple[Facts, ...]:
    """The best label first: by its name, then the earliest."""

    def rank(column: Facts) -> tuple[bool, int, int]:
        folded = fold_name(column.name)
        places = [place for place, word in enumerate(_LABELS) if word in folded]
        return (column.role != "label", places[0] if places else len(_LABELS), 0)

    return tuple(sorted(columns, key=rank))
