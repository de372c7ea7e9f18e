"""Masked SQL keeps a query's structure and drops what depends on its values and its layout."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqale_grpo.curriculum import masked_length, masked_sql

CASES = [
    ("SELECT  name\n\tFROM t ;", "SELECT name FROM t"),
    ("SELECT a FROM t WHERE b = 'it''s' AND c = 12", "SELECT a FROM t WHERE b = ? AND c = ?"),
    ("SELECT 1.5, .5, 2., 1e9, 3.4E-2, 0x1F, x'ab', X''", "SELECT ?, ?, ?, ?, ?, ?, ?, ?"),
    ("SELECT -3", "SELECT -?"),
    ("SELECT t1.c2, T_9.x3y FROM t1 LIMIT 10", "SELECT t1.c2, T_9.x3y FROM t1 LIMIT ?"),
    ("SELECT größe2, é1 FROM straße9", "SELECT größe2, é1 FROM straße9"),
    ('SELECT "a  1" FROM [b  2] JOIN `c  3`', 'SELECT "a  1" FROM [b  2] JOIN `c  3`'),
    ('SELECT "it\'s 5" FROM t WHERE a = \'say "5"\'', 'SELECT "it\'s 5" FROM t WHERE a = ?'),
    ("SELECT a -- the 1st\nFROM t /* 'x'\n */ WHERE b=1", "SELECT a FROM t WHERE b=?"),
    ("SELECT '-- no comment', '/* nor this */'", "SELECT ?, ?"),
    ("SELECT a-b, a/b, a - b FROM t", "SELECT a-b, a/b, a - b FROM t"),
    ("SELECT ?1, :p2, @x3 FROM t", "SELECT ?1, :p2, @x3 FROM t"),
    ("SELECT 'never closed", "SELECT ?"),
    ("SELECT a /* never closed", "SELECT a"),
    ("SELECT a FROM t;;\n;", "SELECT a FROM t"),
    ("-- nothing", ""),
    ("", ""),
]


@pytest.mark.parametrize(("sql", "masked"), CASES)
def test_cases(sql: str, masked: str) -> None:
    assert masked_sql(sql) == masked
    assert masked_length(sql) == len(masked)


_values = st.one_of(
    st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",))).map(
        lambda s: "'" + s.replace("'", "''") + "'"
    ),
    st.integers(0, 10**12).map(str),
    st.floats(0, 1e9).map(repr),
)


@given(_values, _values, st.sampled_from([" ", "\n", "  ", "\t", " -- x\n", "/* 'y' */"]))
def test_values_and_layout_do_not_matter(first: str, second: str, gap: str) -> None:
    sql = f"SELECT a FROM t1 WHERE b = {first}{gap}AND c > {second}{gap};"
    assert masked_sql(sql) == "SELECT a FROM t1 WHERE b = ? AND c > ?"
