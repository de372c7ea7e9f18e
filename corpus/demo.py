"""The demo corpus: a generated stand-in for SQaLe, in SQaLe's own column layout.

``write_demo_corpus(folder)`` writes ``queries/{train,test}.parquet`` and ``schemas/{train,test}.parquet``, which the
SQaLe loader reads like the published files. Every schema draws its own naming habits (prefix and suffix of tables,
names of keys, one of several words for a column), and about a third of the text columns store a value under a code
(``red7``) that a question never states. So a question can only be answered by looking: at the table list, at the
columns, at the keys, at the data. Train and test share the vocabulary and no schema.

How large the demo corpus is: tables a schema, rows a table, schemas, questions.
"""

import json
import math
import random
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from sqale_grpo.corpus.demo_words import (
    AGGREGATES,
    DIFFICULTIES,
    KEY_STYLES,
    NOUNS,
    NUMBER_CONCEPTS,
    PHRASINGS,
    PLACEHOLDERS,
    REFERENCE_STYLES,
    TABLE_PREFIXES,
    TABLE_SUFFIXES,
    TEXT_CONCEPTS,
    TYPE_NAMES,
)
from sqale_grpo.corpus.question import CorpusError

ROWS = 70  # the published median
MOST_TABLES = len(NOUNS)


@dataclass(frozen=True)
class DemoShape:
    """The size of the databases and their number; the defaults follow SQaLe.

    ``tables``: fewest and most of a schema. ``rows``: of a table. ``schemas`` and ``questions`` (of one schema) are
    (train, test) counts.
    """

    tables: tuple[int, int] = (3, 120)
    rows: int = ROWS
    schemas: tuple[int, int] = (160, 60)
    questions: tuple[int, int] = (24, 6)

    def check(self) -> None:
        """Raise CorpusError where no corpus has this shape."""
        low, high = self.tables
        if not 2 <= low <= high <= MOST_TABLES:
            raise CorpusError(
                f"the demo corpus cannot have {low} to {high} tables a schema: choose two rising numbers from 2 to "
                f"{MOST_TABLES}, for which it has names"
            )
        if min(self.rows, *self.schemas, *self.questions) < 1:
            raise CorpusError(f"the demo corpus needs one of everything at least, not {self}")


EMPTY_TABLES = 0.048  # the published share of tables without rows
PLACEHOLDER_SHARE = 0.065  # 87,365 of 169,277 x 8 phrasings
CODED_COLUMNS = 0.35


@dataclass(frozen=True)
class DemoTable:
    """One table: its noun, its declared names, and the stored form of each value word."""

    noun: str
    name: str
    key: str
    text: dict[str, str]  # concept -> column
    numbers: dict[str, str]  # concept -> column
    parents: dict[str, str]  # parent's noun -> referencing column
    stored: dict[str, dict[str, str]]  # concept -> value word -> stored value


@dataclass(frozen=True)
class DemoSchema:
    """One database: tables by noun, parents before their children, and its rows by table name."""

    schema_id: str
    types: tuple[str, str]
    tables: dict[str, DemoTable] = field(default_factory=dict)
    rows: dict[str, list[dict[str, int | str]]] = field(default_factory=dict)


def write_demo_corpus(folder: Path, seed: int = 0, shape: DemoShape | None = None) -> Path:
    """Write both splits below ``folder`` and return it; the same arguments write the same rows.

    Raises CorpusError for a shape that no corpus has.
    """
    shape = shape or DemoShape()
    shape.check()
    for split, n_schemas, n_questions in zip(("train", "test"), shape.schemas, shape.questions, strict=True):
        schema_rows: list[dict] = []
        question_rows: list[dict] = []
        for index in range(n_schemas):
            chance = random.Random(f"demo corpus/{seed}/{split}/{index}")
            size = schema_size(chance, index, n_schemas, shape.tables)
            schema = make_schema(chance, f"demo_{split}_{index}", size, shape.rows)
            schema_rows.append(schema_row(schema))
            question_rows.extend(make_questions(chance, schema, n_questions))
        for kind, rows in (("schemas", schema_rows), ("queries", question_rows)):
            path = folder / kind / f"{split}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(pa.Table.from_pylist(rows), path)
    return folder


def schema_size(chance: random.Random, index: int, total: int, tables: tuple[int, int]) -> int:
    """Log-uniform between the two ends of ``tables``; the first two schemas of a split are the extremes."""
    if index < 2 <= total:
        return tables[index]
    return round(math.exp(chance.uniform(*map(math.log, tables))))


def make_schema(chance: random.Random, schema_id: str, size: int, rows: int) -> DemoSchema:
    """A schema of ``size`` tables with ``rows`` rows each."""
    prefix, suffix = chance.choice(TABLE_PREFIXES), chance.choice(TABLE_SUFFIXES)
    key_style, reference_style = chance.choice(KEY_STYLES), chance.choice(REFERENCE_STYLES)
    schema = DemoSchema(schema_id, chance.choice(TYPE_NAMES))
    nouns = chance.sample(NOUNS, size)
    for index, noun in enumerate(nouns):
        text = {c: chance.choice(TEXT_CONCEPTS[c][0]) for c in chance.sample(sorted(TEXT_CONCEPTS), 2)}
        parents = [] if not index or chance.random() > 0.85 else [chance.choice(nouns[:index])]
        if index > 1 and parents and chance.random() < 0.2:
            parents.append(chance.choice([n for n in nouns[:index] if n != parents[0]]))
        schema.tables[noun] = DemoTable(
            noun=noun,
            name=prefix + noun + suffix,
            key=key_style.format(noun),
            text=text,
            numbers={c: chance.choice(NUMBER_CONCEPTS[c]) for c in chance.sample(sorted(NUMBER_CONCEPTS), 1)},
            parents={p: reference_style.format(p) for p in parents},
            stored={c: stored_values(chance, c) for c in text},
        )
    for index, table in enumerate(schema.tables.values()):
        empty = index > 1 and chance.random() < EMPTY_TABLES
        schema.rows[table.name] = [] if empty else [make_row(chance, table, n + 1, rows) for n in range(rows)]
    return schema


def stored_values(chance: random.Random, concept: str) -> dict[str, str]:
    """Four of the concept's words and how the data spells them: plain, or under a code that only the data shows."""
    words = chance.sample(TEXT_CONCEPTS[concept][1], 4)
    coded = chance.random() < CODED_COLUMNS
    return {word: f"{word}{chance.randint(1, 9)}" if coded else word for word in words}


def make_row(chance: random.Random, table: DemoTable, key: int, rows: int) -> dict[str, int | str]:
    """One row of ``table`` by column; a reference points at one of its parent's ``rows`` keys."""
    row: dict[str, int | str] = {table.key: key}
    for concept, column in table.text.items():
        row[column] = chance.choice(list(table.stored[concept].values()))
    for column in table.numbers.values():
        row[column] = chance.randint(1, 99)
    for column in table.parents.values():
        row[column] = chance.randint(1, rows)
    return row


def create_table(schema: DemoSchema, table: DemoTable) -> str:
    """The table's CREATE TABLE statement."""
    integer, text = schema.types
    lines = [f"{table.key} {integer} PRIMARY KEY"]
    lines += [f"{column} {text}" for column in table.text.values()]
    lines += [f"{column} {integer}" for column in table.numbers.values()]
    for noun, column in table.parents.items():
        parent = schema.tables[noun]
        lines.append(f"{column} {integer} REFERENCES {parent.name}({parent.key})")
    return f"CREATE TABLE {table.name} ({', '.join(lines)})"


def schema_row(schema: DemoSchema) -> dict:
    """A row of the SQaLe databases file."""
    return {
        "schema_id": schema.schema_id,
        "full_schema": ";\n".join(create_table(schema, t) for t in schema.tables.values()) + ";",
        "schema_content": json.dumps({name: rows for name, rows in schema.rows.items() if rows}),
        "number_of_tables": len(schema.tables),
    }


def make_questions(chance: random.Random, schema: DemoSchema, count: int) -> Iterator[dict]:
    """Rows of the SQaLe questions file; every gold result is one number, no two of a schema are the same."""
    connection = sqlite3.connect(":memory:")
    connection.executescript(schema_row(schema)["full_schema"])
    for name, rows in schema.rows.items():
        if rows:
            connection.executemany(
                f"INSERT INTO {name} VALUES ({', '.join('?' * len(rows[0]))})", (tuple(r.values()) for r in rows)
            )
    seen: set[str] = set()
    for _ in range(50 * count):
        difficulty = chance.choice(list(DIFFICULTIES))
        drawn = draw_question(chance, schema, chance.choice(DIFFICULTIES[difficulty]))
        if drawn is None or drawn[0] in seen:
            continue
        sql, phrasings, tables = drawn
        result = connection.execute(sql).fetchall()
        if result[0][0] in (None, 0):
            continue
        seen.add(sql)
        for style in phrasings:
            if chance.random() < PLACEHOLDER_SHARE and style != "verbose":
                phrasings[style] = chance.choice(PLACEHOLDERS).format(difficulty=difficulty.capitalize())
        yield {
            "question_id": f"{schema.schema_id}_q{len(seen) - 1}",
            "schema_id": schema.schema_id,
            "sql": sql,
            "difficulty": difficulty,
            "questions": phrasings,
            "relevant_tables": json.dumps(tables),
            "number_of_relevant_tables": len(tables),
            "execution_result": json.dumps(result),
        }
        if len(seen) == count:
            break
    connection.close()


def draw_question(chance: random.Random, schema: DemoSchema, form: str) -> tuple[str, dict[str, str], list[str]] | None:
    """Gold SQL, the eight phrasings and the tables of one question; None where this table cannot carry the form."""
    table = chance.choice(list(schema.tables.values()))
    parent = None
    if form.startswith("join"):
        if not table.parents:
            return None
        parent = schema.tables[chance.choice(list(table.parents))]
    filtered = parent or table
    concept = chance.choice(list(filtered.text))
    word = chance.choice(list(filtered.stored[concept]))
    number = chance.choice(list(table.numbers))
    aggregate = chance.choice(list(AGGREGATES))
    sql = gold_sql(
        table.name,
        filtered.text[concept],
        filtered.stored[concept][word],
        f"{AGGREGATES[aggregate]}({{}}{table.numbers[number]})" if form.endswith("aggregate") else "count(*)",
        (parent.name, table.parents[parent.noun], parent.key) if parent else None,
    )
    words = {"x": table.noun, "c": concept, "v": word, "n": number, "a": aggregate, "p": parent.noun if parent else ""}
    tables = [t.name for t in (table, parent) if t]
    return sql, {style: text.format(**words) for style, text in PHRASINGS[form].items()}, tables


def gold_sql(table: str, column: str, value: str, selected: str, join: tuple[str, str, str] | None) -> str:
    """The one way in which the demo writes a query.

    ``selected`` is ``count(*)`` or an aggregate whose ``{}`` takes the alias; ``join`` is (parent table, referencing
    column, key).
    """
    if join is None:
        return f"SELECT {selected.format('')} FROM {table} WHERE {column} = '{value}'"
    parent, reference, key = join
    return (
        f"SELECT {selected.format('a.')} FROM {table} AS a JOIN {parent} AS b ON a.{reference} = b.{key} "
        f"WHERE b.{column} = '{value}'"
    )
