"""The record of an evaluation: what is written comes back, in one order, and its token counts are right."""

import pyarrow.parquet as pq
import pytest

from sqale_grpo.evaluate.records import RECORD, TokenCounts, read_records, record_files, token_counts, write_records
from sqale_grpo.rollout.record import SCHEMA, read_episodes


def test_rows_come_back_in_the_order_of_questions_whatever_the_order_of_files(tmp_path):
    write_records(tmp_path, 1, [{"index": 4, "candidate": 1}, {"index": 4, "candidate": 0}])
    write_records(tmp_path, 0, [{"index": 9, "candidate": 0, "message": "lone \udcff byte"}])
    rows = read_records(tmp_path)
    assert [(row["index"], row["candidate"]) for row in rows] == [(4, 0), (4, 1), (9, 0)]
    assert rows[2]["message"] == "lone \\udcff byte" and rows[2]["official"] is None
    assert list(rows[0]) == RECORD.names


def test_a_file_that_a_kill_cut_off_is_not_there(tmp_path):
    path = write_records(tmp_path, 0, [{"index": 0, "candidate": 0}])
    path.with_name("000001.partial").write_bytes(path.read_bytes()[:100])
    assert record_files(tmp_path) == [path] and len(read_records(tmp_path)) == 1
    assert read_records(tmp_path / "nothing") == []


def test_trainings_reader_reads_an_evaluation_too(tmp_path):
    write_records(tmp_path, 0, [{"index": 3, "candidate": 0, "sql": "SELECT 1"}])
    assert read_episodes(tmp_path / "episodes").column("sql").to_pylist() == ["SELECT 1"]
    assert set(SCHEMA.names) < set(pq.read_schema(record_files(tmp_path)[0]).names)


def test_the_columns_of_the_counts_are_columns_of_the_record():
    assert set(TokenCounts().columns()) <= set(RECORD.names)


@pytest.mark.parametrize(
    ("prompt", "mask", "counts"),
    [
        (10, [1, 1, 0, 0, 0, 1], TokenCounts(10, 6, 3, 16, 12 + 16)),
        (10, [1, 0], TokenCounts(10, 2, 1, 12, 11)),
        (7, [0], TokenCounts(7, 1, 0, 8, 0)),  # the question alone was over the budget: nothing was written
    ],
)
def test_tokens_without_a_cache_are_the_whole_context_at_every_turn(prompt, mask, counts):
    assert token_counts(prompt, mask) == counts
