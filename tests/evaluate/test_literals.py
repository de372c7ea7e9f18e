"""Literals of the gold query: which there are, which are stated, shown by a cell and used."""

import pytest

from sqale_grpo.evaluate.literals import Literal, count_literals, echoes, literals_of_answer, string_literals

COLUMNS = {"t": ["a", "b", "c", "d", "n", "x", "y"], "rx": ["drug", "dose"]}.get


def texts(sql: str) -> list[str]:
    return [each.text for each in string_literals(sql, COLUMNS)]


@pytest.mark.parametrize(
    ("sql", "literals"),
    [
        ("SELECT a FROM t WHERE x = 'it''s' AND y IN ('b', 'b', 'c') AND n = 3 -- 'no'", ["it's", "b", "c"]),
        ("SELECT 1 FROM t WHERE a = '100%' OR b = '_id' OR c = '' OR d = ' '", ["100%", "_id"]),
        ("SELECT 1 FROM t WHERE 'left' = a AND (a, b) = ('x', 'y')", ["left", "x", "y"]),
        ("SELECT 1 FROM t WHERE c BETWEEN '1' AND '2'", ["1", "2"]),
        ("SELECT 1 FROM t WHERE a IS 'p' OR b IS NOT 'q' OR c IN (VALUES ('r'), ('s'))", ["p", "q", "r", "s"]),
        ("SELECT 1 FROM t WHERE x = 'open", []),
        # Nobody can look up what a query makes itself.
        ("SELECT CASE WHEN a = 'in' THEN 'YES' ELSE 'NO' END, IIF(n > 1, 'many', 'one') FROM t", ["in"]),
        ("SELECT CASE a WHEN 'x' THEN 'first' ELSE 'other' END FROM t", ["x"]),
        ("SELECT a || ', ', replace(c, '.', ''), group_concat(a, ';') FROM t WHERE a || '-' || b = 'u-v'", ["u-v"]),
        ("SELECT substr(a, 1, instr(a, ':') - 1) FROM t WHERE instr(b, '_1') > 0", []),
        ("SELECT 'out' FROM t WHERE 'a' = 'b'", []),
        # Of dates the moment, not the format and not what moves it.
        ("SELECT 1 FROM t WHERE strftime('%Y', d) = '2023' AND d < datetime('now', '-1 year')", ["2023"]),
        ("SELECT 1 FROM t WHERE d > date('2024-05-01')", ["2024-05-01"]),
        ("SELECT 1 FROM t WHERE d < date('2024-06-01', '+1 day')", ["2024-06-01"]),
        ("SELECT 1 FROM t WHERE d > strftime('%Y', '2020-01-01') AND julianday(d) < julianday('now')", ["2020-01-01"]),
        ("SELECT date(max(CASE WHEN a = 'in' THEN d END)), 'out' FROM t", ["in"]),
        # Text in double quotes is a text where nothing has the name.
        ('SELECT 1 FROM t WHERE a = "Ana" AND b = "c" AND `x` = "Bo" AND n = [d]', ["Ana", "Bo"]),
        ('SELECT a AS "total" FROM t WHERE t."a" > 1 ORDER BY "total"', []),
        ('WITH w("k") AS (SELECT a FROM t) SELECT 1 FROM w WHERE "k" = "Ana"', ["Ana"]),
        ('SELECT 1 FROM unknown WHERE a = "Ana" AND b = \'Bo\'', ["Bo"]),
    ],
)  # fmt: skip
def test_a_literal_is_a_value_that_is_compared_with_a_column(sql, literals):
    assert texts(sql) == literals


@pytest.mark.parametrize(
    ("pattern", "parts"),
    [
        ("a LIKE '%red%'", ["red"]),
        ("a NOT LIKE 'x_'", ["x"]),
        ("a GLOB '*y*' AND b GLOB 'z[0-9]?w'", ["y", "z", "w"]),
        ("a LIKE '%foo%bar%'", ["foo", "bar"]),
        ("LOWER(a) LIKE LOWER('%Computer Science%')", ["Computer Science"]),
        ("a LIKE '%:%:__.' OR b LIKE '%:%' OR c LIKE '_1'", ["1"]),
        ("a LIKE '1:40%' OR b LIKE 'red_7'", ["1:40", "red_7"]),
        (r"a LIKE '50\%' ESCAPE '\' OR b LIKE '%u!_v%' ESCAPE '!'", ["50%", "u_v"]),
    ],
)
def test_patterns_count_by_their_parts(pattern, parts):
    assert texts(f"SELECT 1 FROM t WHERE {pattern}") == parts


@pytest.mark.parametrize(
    ("text", "found"),
    [("red | 3", True), ("a\nred", True), ("red_7", False), ("scared", False), ("'red'", True), ("Red", False)],
)
def test_a_literal_appears_as_a_whole(text, found):
    assert Literal("red").appears(text) is found


def test_a_pattern_is_seen_where_it_would_match():
    (part,) = string_literals("SELECT 1 FROM t WHERE a LIKE 'comp%'")
    assert part.appears("1 | Computing") and not part.appears("1 | decompose")
    (folded,) = string_literals("SELECT 1 FROM t WHERE LOWER(a) = 'ana'")
    assert folded.appears("Ana") and not folded.appears("Anab")
    (exact,) = string_literals("SELECT 1 FROM t WHERE a = 'ana'")
    assert not exact.appears("Ana")


def test_an_answer_may_hold_text_in_either_quotes():
    held = literals_of_answer("SELECT \"c\" FROM t WHERE a = \"red_7\" OR b LIKE '%it''s'")
    assert {"c", "red_7", "it's"} <= held


GOLD = "SELECT 1 FROM t WHERE a = 'red_7' AND b = 'paris' AND c = 'blue_2'"
QUESTION = "How many red ones are in Paris?"


def called(*results: str) -> list[tuple[str, dict[str, object], str]]:
    return [("sample_rows", {"table_name": "t"}, result) for result in results]


def test_counts_tell_stated_from_unstated_and_seen_from_used():
    results = called("hue\nred_7\nblue_1", "c\nblue_2")
    counts = count_literals(GOLD, QUESTION, results, "SELECT 1 FROM t WHERE a = 'red_7' AND b = 'paris'")
    assert (counts.literals, counts.literals_seen) == (3, 2)
    assert (counts.stated, counts.stated_seen) == (1, 0)
    assert (counts.unstated, counts.unstated_seen) == (2, 2)
    # 'paris' is in the answer and was never shown: it was not looked up.
    assert (counts.literals_used, counts.unstated_used) == (1, 1)


def test_without_an_answer_nothing_is_used():
    counts = count_literals(GOLD, QUESTION, called("a\nred_7"), None)
    assert (counts.unstated_seen, counts.unstated_used) == (1, 0)


@pytest.mark.parametrize(
    ("sql", "result", "seen"),
    [
        # The database has no zolpidem: what the policy wrote comes back to it.
        ("SELECT sum(drug = 'zolpidem' OR dose > 3) FROM rx", "sum(drug = 'zolpidem' OR dose > 3)\n0", 0),
        ("SELECT drug = 'zolpidem' FROM rx", "drug = 'zolpidem'\n0", 0),
        ("SELECT 'zolpidem'", "'zolpidem'\nzolpidem", 0),
        ('SELECT "zolpidem" FROM rx', '"zolpidem"\nzolpidem', 0),
        ("SELECT x FROM (SELECT 'no zolpidem' AS x)", "x\nno zolpidem", 0),
        ("WITH w(d) AS (VALUES ('zolpidem')) SELECT d FROM w", "d\nzolpidem", 0),
        # Here a cell of the data shows it, also where the query looked for it.
        ("SELECT DISTINCT drug FROM rx", "drug\nsonata\nzolpidem", 1),
        ("SELECT drug, 'mg' FROM rx WHERE drug = 'zolpidem'", "drug | 'mg'\nzolpidem | mg", 1),
        ("SELECT drug FROM rx WHERE drug LIKE '%zolpidem%'", "drug\nzolpidem", 1),
    ],
)  # fmt: skip
def test_seen_means_that_a_cell_of_the_data_showed_it(sql, result, seen):
    gold = "SELECT dose FROM rx WHERE drug = 'zolpidem'"
    counts = count_literals(gold, "Which dose?", [("run_query", {"sql": sql}, result)], gold, COLUMNS)
    assert (counts.unstated, counts.unstated_seen, counts.literals_used) == (1, seen, seen)


def test_what_cannot_be_parsed_echoes_all_of_its_texts():
    assert "zolpidem" in echoes("SELECT 'zolpidem' FROM FROM")
    assert echoes("SELECT 1 FROM rx WHERE drug = 'zolpidem'") == []


def test_a_statement_of_the_schema_shows_its_values():
    gold = "SELECT 1 FROM t WHERE a = 'closed'"
    told = [("describe_table", {"table_name": "t"}, "CREATE TABLE t (a TEXT CHECK (a IN ('open', 'closed')))")]
    assert count_literals(gold, "How many are done?", told, gold).unstated_seen == 1
