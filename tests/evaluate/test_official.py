"""Official verdicts against an independent reading of the rules, on 500 mutations of real queries.

The rules: BIRD compares the sets of rows, 30 s a query; EHRSQL compares the first 100 rows, as text and sorted, with
its placeholders replaced in answers too. The reading here uses sqlite3 alone.
"""

import json
import re
import sqlite3
import time
from collections import Counter
from contextlib import closing

import pytest

from sqale_grpo.corpus import Question
from sqale_grpo.corpus.ehrsql import CURRENT_TIME
from sqale_grpo.env.chance import rng
from sqale_grpo.env.sandbox import Limits, Sandbox
from sqale_grpo.evaluate.chunk import official_verdict

PAIRS = 500
CAP = Limits().rows


def outer(sql, select="*", rest=""):
    return f"SELECT {select} FROM ({sql}\n) {rest}"


def renamed(sql, width, columns):
    """The query's columns as c0, c1 ... and any expressions over them."""
    return f"WITH r({', '.join(f'c{i}' for i in range(width))}) AS ({sql}\n) SELECT {', '.join(columns)} FROM r"


def other_literal(sql, chance):
    """One literal changed: a text gets a letter, a number is one more."""
    found = list(re.finditer(r"'(?:[^']|'')*'|\b\d+\b", sql))
    if not found:
        return None
    one = chance.choice(found)
    new = f"'x{one[0][1:]}" if one[0].startswith("'") else str(int(one[0]) + 1)
    return sql[: one.start()] + new + sql[one.end() :]


def mutation(kind, sql, width, rows, chance):
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
        "no answer": None,
        "clock": "SELECT current_time",
    }[kind]


KINDS = (
    "same", "column dropped", "columns swapped", "column as text", "column as real", "rows twice",
    "rows beyond the cap", "reordered", "limited", "first hundred", "distinct", "other literal", "unknown column",
    "broken", "clock",
)  # fmt: skip


def fetched(path, sql):
    """All rows of a query on a plain connection, or None where it fails or takes over 30 s."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        connection.text_factory = lambda data: data.decode(errors="surrogateescape")
        ends = time.monotonic() + 30
        connection.set_progress_handler(lambda: time.monotonic() > ends, 10_000)
        try:
            return connection.execute(sql).fetchall()
        except (sqlite3.Error, sqlite3.Warning):
            return None


def bird_rule(path, gold, answer):
    rows, right = fetched(path, answer), fetched(path, gold)
    return rows is not None and right is not None and set(rows) == set(right)


def ehrsql_rule(path, gold, answer):
    answer = re.sub(r"\bcurrent_time\b", f"'{CURRENT_TIME}'", answer)
    rows, right = fetched(path, answer), fetched(path, gold)
    as_text = [None if some is None else str(sorted([str(row) for row in some[:100]])) for some in (rows, right)]
    return rows is not None and as_text[0] == as_text[1]


def pairs(shared_data):
    """(kind, database, gold, answer) of PAIRS mutations, equally many of each kind while questions last."""
    lines = (shared_data / "questions.jsonl").read_text(encoding="utf-8").splitlines()
    usable = [q for q in map(json.loads, lines) if q["n_rows"] <= 2_000 and "current_time" not in q["sql"].lower()]
    long = [q for q in usable if q["n_rows"] > 100]
    chance = rng("official pairs")
    chance.shuffle(usable)
    chance.shuffle(long)
    made = 0
    while made < PAIRS:
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


def asked(corpus, gold):
    return Question("q", "d", "text", "", gold, (), "", corpus)


def test_verdicts_equal_the_rules_on_mutated_pairs(shared_data):
    found = Counter()
    for kind, path, gold, answer in pairs(shared_data):
        with Sandbox(path, Limits(seconds=30.0)) as sandbox:
            ours = [official_verdict(asked(name, gold), path, answer, sandbox, 30.0) for name in ("bird", "ehrsql")]
        rules = [bird_rule(path, gold, answer), ehrsql_rule(path, gold, answer)]
        assert ours == rules, (kind, path.stem, gold, answer)
        found[kind, *ours] += 1
    assert sum(found.values()) == PAIRS
    # Each benchmark says both, and each is the stricter one somewhere.
    by_verdicts = Counter(
        {
            verdicts: sum(n for (_, *v), n in found.items() if tuple(v) == verdicts)
            for verdicts in [(True, True), (True, False), (False, True), (False, False)]
        }
    )
    assert min(by_verdicts.values()) >= 5, by_verdicts
    assert found["rows beyond the cap", True, False] > 10


def test_no_answer_is_wrong_and_other_corpora_have_no_verdict(tmp_path):
    path = tmp_path / "d.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t (a)")
        connection.commit()
    with Sandbox(path) as sandbox:
        gold = f"SELECT '{CURRENT_TIME}'"
        assert not official_verdict(asked("bird", gold), path, None, sandbox, 30.0)
        assert official_verdict(asked("ehrsql", gold), path, "SELECT current_time", sandbox, 30.0)
        assert not official_verdict(asked("bird", gold), path, "SELECT current_time", sandbox, 30.0)
        with pytest.raises(KeyError):
            official_verdict(asked("demo", gold), path, gold, sandbox, 30.0)
