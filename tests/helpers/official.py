"""Hard pairs of gold query and answer with the benchmarks' own verdicts, and mutations of real queries.

The verdicts are what BIRD's (mini-dev's ``evaluation_ex.py``) and EHRSQL's (``evaluate.py``, v1.5.1) scripts print for
the pair; ``tests/reward/test_official_scripts.py`` runs the scripts again where their paths are given.
"""

import json
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import NamedTuple

from sqale_grpo.env.chance import rng
from sqale_grpo.env.sandbox import Limits


class Pair(NamedTuple):
    """A gold query and an answer (None: there is none), and whether that is right in each benchmark."""

    why: str
    gold: str
    answer: str | None
    bird: bool
    ehrsql: bool


SETUP = """\
CREATE TABLE prescriptions (drug TEXT, route TEXT, startdate TEXT, dose INTEGER, temperature REAL);
INSERT INTO prescriptions VALUES ('sonata', 'po', '2105-12-30 10:00:00', 1, 36.6);
INSERT INTO prescriptions VALUES ('o''brien', 'iv', '2104-01-02 00:00:00', 2, 39.0);
CREATE TABLE latin (name TEXT);
INSERT INTO latin VALUES ('plain'), (CAST(x'ff' AS TEXT));
PRAGMA user_version = 7;
"""
ONE = "select dose from prescriptions where drug = 'sonata'"
NONE = "select dose from prescriptions where drug = 'no such drug'"


def numbers(most: int) -> str:
    """A common table expression ``n(i)`` of 1 to ``most``."""
    return f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {most}) "


PAIRS = [
    Pair("spelled as the question does", ONE, "SELECT dose FROM prescriptions WHERE drug = 'Sonata'", False, True),
    Pair(
        "now is the fixed moment, also in the year's format",
        "select strftime('%y',current_time)",
        "SELECT strftime('%Y', 'now')",
        False,
        True,
    ),
    Pair("now as an argument", ONE, ONE + " AND startdate <= datetime('now')", False, True),
    Pair("current_time in quotes", ONE, ONE + " AND startdate < datetime('current_time')", False, True),
    Pair(
        "current_time as a name",
        "select dose from prescriptions where startdate < '2105-12-31 23:59:00' and dose = 1",
        "SELECT dose FROM prescriptions WHERE startdate < current_time AND dose = 1",
        False,
        True,
    ),
    Pair("a format in upper case", ONE, ONE + " AND strftime('%H', startdate) = '10'", True, False),
    Pair("the month's format is in lower case anyway", ONE, ONE + " AND strftime('%m', startdate) = '12'", True, True),
    Pair(
        "day of the year becomes the Julian day",
        "select strftime('%j', startdate) from prescriptions where dose = 1",
        "SELECT strftime('%J', startdate) FROM prescriptions WHERE dose = 1",
        False,
        True,
    ),
    Pair("an empty text in quotes", ONE, ONE + " AND route <> ''", True, False),
    Pair(
        "a doubled quote",
        "select dose from prescriptions where dose = 2",
        "SELECT dose FROM prescriptions WHERE drug = 'o''brien'",
        True,
        False,
    ),
    Pair("a comparison with a blank in it", ONE, "SELECT dose FROM prescriptions WHERE dose < = 1", False, True),
    Pair(
        "both ends of a vital sign",
        ONE,
        "SELECT dose FROM prescriptions WHERE temperature > temperature_lower AND temperature < temperature_upper",
        False,
        True,
    ),
    Pair(
        "one end of a vital sign",
        ONE,
        "SELECT dose FROM prescriptions WHERE temperature < 38 AND temperature > temperature_lower",
        False,
        False,
    ),
    Pair(
        "ends of two vital signs",
        ONE,
        "SELECT dose FROM prescriptions WHERE temperature > sao2_lower - 60 AND temperature < temperature_upper",
        False,
        False,
    ),
    Pair(
        "an end right after a bracket",
        ONE,
        "SELECT dose FROM prescriptions WHERE temperature BETWEEN (temperature_lower) AND temperature_upper",
        False,
        False,
    ),
    Pair("text in capitals that the answer returns", "select 'a'", "SELECT 'A'", False, True),
    Pair("no answer, empty gold", NONE, None, True, False),
    Pair("no answer", ONE, None, False, False),
    Pair("an empty answer, empty gold", NONE, "", True, True),
    Pair("blanks, empty gold", NONE, "  \n", True, True),
    Pair("a comment, empty gold", NONE, "-- nothing", True, True),
    Pair("a semicolon, empty gold", NONE, ";", True, True),
    Pair("an empty answer", ONE, "", False, False),
    Pair("it abstains", ONE, "null", False, False),
    Pair("it abstains in capitals, empty gold", NONE, "NULL", False, False),
    Pair("the word null with a blank", NONE, " null", False, False),
    Pair("a semicolon at the end", ONE, ONE + " ;", True, True),
    Pair("a comment behind the semicolon", ONE, ONE + "; -- done", True, True),
    Pair("two semicolons", ONE, ONE + ";;", False, False),
    Pair("a second statement", ONE, ONE + "; SELECT 2", False, False),
    Pair("a semicolon before", ONE, ";" + ONE, True, True),
    Pair("an unclosed comment", ONE, ONE + " /* open", True, True),
    Pair("a PRAGMA of the file", "select 7", "PRAGMA user_version", True, True),
    Pair("a PRAGMA of a table", "select 0 where 0", "PRAGMA table_info(no_such_table)", True, True),
    Pair("EXPLAIN", ONE, "EXPLAIN " + ONE, False, False),
    Pair("text that is not UTF-8", "select name from latin", "select name from latin", False, False),
    Pair(
        "text that is not UTF-8, not asked for",
        "select count(*) from latin",
        "SELECT COUNT(name) FROM latin",
        True,
        True,
    ),
    Pair("text that is not UTF-8, as a blob", "select hex(name) from latin", "SELECT HEX(name) FROM latin", True, True),
    Pair(
        "rows repeated beyond any cap, with an unclosed comment",
        "select 1",
        numbers(30000) + "SELECT 1 FROM n /* open",
        True,
        False,
    ),
    Pair(
        "the hundred and first row",
        numbers(101) + "select i from n",
        numbers(100) + "SELECT i FROM n UNION ALL SELECT 0",
        False,
        True,
    ),
    Pair(
        "the hundredth row",
        numbers(100) + "select i from n",
        numbers(99) + "SELECT i FROM n UNION ALL SELECT 0",
        False,
        False,
    ),
    Pair(
        "an error after the hundredth row",
        numbers(150) + "select i from n",
        numbers(150) + "SELECT CASE WHEN i < 150 THEN i ELSE abs(-9223372036854775807 - 1) END FROM n",
        False,
        False,
    ),
    Pair(
        "not UTF-8 after the hundredth row",
        numbers(120) + "select i from n",
        numbers(120) + "SELECT CASE WHEN i < 120 THEN i ELSE CAST(x'ff' AS TEXT) END FROM n",
        False,
        False,
    ),
    Pair(
        "rows in another order",
        "select dose from prescriptions order by dose",
        "SELECT dose FROM prescriptions ORDER BY dose DESC",
        True,
        True,
    ),
    Pair("rows repeated", ONE, ONE + " UNION ALL " + ONE, True, False),
    Pair("a whole number as a real", ONE, "SELECT dose * 1.0 FROM prescriptions WHERE dose = 1", True, False),
    Pair("float noise", "select 0.3", "SELECT 0.1 + 0.2", False, False),
    Pair("a number as text", ONE, "SELECT '1'", False, False),
    Pair(
        "columns swapped", "select dose, drug from prescriptions", "SELECT drug, dose FROM prescriptions", False, False
    ),
    Pair("an unknown column", ONE, "SELECT nothing FROM prescriptions", False, False),
    Pair("a NULL row for no row", NONE, "SELECT NULL", False, False),
    Pair("a gold query that fails", "select nothing", "select nothing", False, False),
    Pair("a null character", ONE, ONE + "\0", False, False),
]


CAP = Limits().rows
KINDS = (
    "same", "column dropped", "columns swapped", "column as text", "column as real", "rows twice",
    "rows beyond the cap", "reordered", "limited", "first hundred", "distinct", "other literal", "unknown column",
    "broken", "clock", "two semicolons",
)  # fmt: skip


def outer(sql: str, select: str = "*", rest: str = "") -> str:
    """A query over the query's rows."""
    return f"SELECT {select} FROM ({sql}\n) {rest}"


def renamed(sql: str, width: int, columns: list[str]) -> str:
    """The query's columns as c0, c1 ... and any expressions over them."""
    return f"WITH r({', '.join(f'c{i}' for i in range(width))}) AS ({sql}\n) SELECT {', '.join(columns)} FROM r"


def other_literal(sql: str, chance: Random) -> str | None:
    """One literal changed: a text gets a letter, a number is one more."""
    found = list(re.finditer(r"'(?:[^']|'')*'|\b\d+\b", sql))
    if not found:
        return None
    one = chance.choice(found)
    new = f"'x{one[0][1:]}" if one[0].startswith("'") else str(int(one[0]) + 1)
    return sql[: one.start()] + new + sql[one.end() :]


def mutation(kind: str, sql: str, width: int, rows: int, chance: Random) -> str | None:
    """The answer of a mutation; None where it cannot be made of this query."""
    names = [f"c{i}" for i in range(width)]
    if kind == "other literal":
        return other_literal(sql, chance)
    repeats = CAP // max(rows, 1) + 1
    return {
        "same": sql + " ; -- as it is",
        "column dropped": renamed(sql, width, names[:-1]) if width > 1 else None,
        "columns swapped": renamed(sql, width, names[::-1]) if width > 1 else None,
        "column as text": renamed(sql, width, [*names[:-1], f"c{width - 1} || ''"]),
        "column as real": renamed(sql, width, [*names[:-1], f"c{width - 1} * 1.0"]),
        "rows twice": f"{outer(sql)} UNION ALL {outer(sql)}",
        "rows beyond the cap": f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {repeats}) "
        f"{outer(sql, 'q.*', 'AS q, n')};",
        "reordered": outer(sql, rest="ORDER BY 1 DESC"),
        "limited": outer(sql, rest=f"LIMIT {max(1, rows - 1)}"),
        "first hundred": outer(sql, rest="LIMIT 100"),
        "distinct": outer(sql, "DISTINCT *"),
        "unknown column": outer(sql, "no_such_column"),
        "broken": sql[: len(sql) // 2] + ")",
        "clock": "SELECT current_time",
        "two semicolons": sql + ";;",
    }[kind]


def fetched(path: Path, sql: str) -> list[tuple] | None:
    """All rows of a query on a plain connection, or None where it fails or takes over 30 s."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        ends = time.monotonic() + 30
        connection.set_progress_handler(lambda: time.monotonic() > ends, 10_000)
        try:
            return connection.execute(sql).fetchall()
        except (sqlite3.Error, sqlite3.Warning):
            return None


def mutated_pairs(shared_data: Path, wanted: int) -> Iterator[tuple[str, Path, str, str]]:
    """(kind, database, gold, answer) of ``wanted`` mutations of real queries, about equally many of each kind."""
    lines = (shared_data / "questions.jsonl").read_text(encoding="utf-8").splitlines()
    usable = [q for q in map(json.loads, lines) if q["n_rows"] <= 2_000 and "current_time" not in q["sql"].lower()]
    long = [q for q in usable if q["n_rows"] > 100]
    chance = rng("official pairs")
    chance.shuffle(usable)
    chance.shuffle(long)
    made = 0
    while made < wanted:
        kind = KINDS[made % len(KINDS)]
        # Where the hundredth row decides, take a question that has one.
        question = (long if long and made % 3 == 0 else usable).pop()
        path = shared_data / "databases" / question["db_id"] / f"{question['db_id']}.sqlite"
        gold = question["sql"].strip().rstrip(";")
        begun = time.monotonic()
        rows = fetched(path, gold)
        if not rows or time.monotonic() - begun > 0.1:  # a slow query tells no more than a fast one
            continue
        answer = mutation(kind, gold, len(rows[0]), len(rows), chance)
        if answer is not None:
            yield kind, path, gold, answer
            made += 1
