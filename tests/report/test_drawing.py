"""Drawing of the foreign-key graph: distance from the gold tables is the column, nothing overlaps, nothing is lost."""

from hypothesis import given
from hypothesis import strategies as st

from sqale_grpo.report.drawing import ROWS, draw


def test_columns_are_distances_from_the_gold_tables() -> None:
    tables = ["a", "b", "c", "d", "lone"]
    drawing = draw(tables, [("a", "b"), ("B", "C"), ("d", "c"), ("d", "gone")], ["A"])
    assert [column for column, _ in drawing.positions] == [0, 1, 2, 3, 4]
    assert drawing.edges == ((0, 1), (1, 2), (3, 2))


def test_without_gold_tables_everything_is_still_drawn() -> None:
    drawing = draw(["a", "b", "c"], [("c", "a")], [])
    assert len(set(drawing.positions)) == 3
    assert draw([], [], ["x"]).positions == ()


@given(
    st.integers(1, 70),
    st.lists(st.tuples(st.integers(0, 69), st.integers(0, 69)), max_size=150),
    st.sets(st.integers(0, 69), max_size=4),
)
def test_no_two_tables_overlap_and_the_layout_is_the_same_each_time(
    count: int, keys: list[tuple[int, int]], gold: set[int]
) -> None:
    names = [f"t{number}" for number in range(count)]
    arguments = (names, [(f"t{a}", f"t{b}") for a, b in keys], [f"t{g}" for g in sorted(gold)])
    drawing = draw(*arguments)
    assert drawing == draw(*arguments)
    assert len(drawing.positions) == count
    by_column: dict[int, list[float]] = {}
    for column, row in drawing.positions:
        by_column.setdefault(column, []).append(row)
    assert all(0 <= row < ROWS for rows in by_column.values() for row in rows)
    for rows in by_column.values():
        ordered = sorted(rows)
        assert all(after - before >= 1 for before, after in zip(ordered, ordered[1:], strict=False))
    assert sorted(by_column) == list(range(len(by_column)))
