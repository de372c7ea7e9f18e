"""The doctor names a folder's corpus, its version, and each ill with the remedy."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sqale_grpo.corpus import CorpusError, doctor
from sqale_grpo.corpus.doctor import COUNTS, EHRSQL_VERSIONS, digest, examine, health
from tests.helpers.corpora import database, own_questions
from tests.helpers.programs import program

main = program("corpus")


def array(path: Path, records: list[dict]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(records))


def bird(number: int, db_id: str = "shop") -> dict[str, object]:
    return {"question_id": number, "db_id": db_id, "question": "?", "evidence": "", "SQL": "SELECT 1"}


def test_whole_bird_sets_are_known_by_their_numbers(tmp_path: Path) -> None:
    array(tmp_path / "dev_20240627/dev.json", [bird(n) for n in range(1534)])
    array(tmp_path / "MINIDEV/mini_dev_sqlite.json", [bird(n) for n in range(500)])
    array(tmp_path / "train-filtered/train.json", [bird(n) for n in range(6601)])
    for place in ("dev_20240627/dev", "MINIDEV/dev", "train-filtered/train"):
        database(tmp_path / f"{place}_databases/shop/shop.sqlite")
    found = {each.split: each for each in examine(tmp_path)}
    assert {split: each.title.partition(":")[0] for split, each in found.items()} == {
        "train": "BIRD train-filtered",
        "dev": "BIRD dev",
        "mini_dev": "BIRD mini-dev",
    }
    assert not any(each.ills for each in found.values())


def test_what_is_missing_broken_or_a_part_has_its_remedy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ("shop", "cut", "gone", "pointer", "empty")
    array(tmp_path / "dev.json", [*(bird(n, name) for n, name in enumerate(names)), bird(0)])
    for name in ("shop", "cut"):
        path = database(tmp_path / f"dev_databases/{name}/{name}.sqlite")
    path.write_bytes(path.read_bytes()[:5000])
    for name, text in (("pointer", "version https://git-lfs.github.com/spec/v1\n"), ("empty", "")):
        (tmp_path / f"dev_databases/{name}").mkdir()
        (tmp_path / f"dev_databases/{name}/{name}.sqlite").write_text(text)
    assert main(["doctor", str(tmp_path)]) == 1
    said = capsys.readouterr().out
    for words in (
        "bird dev: 6 questions over 5 databases",
        "6 questions, and published are 1,534 (BIRD dev)\n  -> another version, or a part",
        "1 question ids come twice, such as bird_dev_0",
        "1 of 5 databases are missing, and 1 questions with them: 'gone'\n  -> put the first at",
        "cut.sqlite is cut: 5,000 of",
        "pointer.sqlite is a Git LFS pointer",
        "empty.sqlite is empty: 1 questions are lost",
        f"next: sqale-grpo corpus prepare --corpus bird --split dev --source {tmp_path}",
    ):
        assert words in said, words


def test_spider_is_not_taken_for_bird(tmp_path: Path) -> None:
    """Both call a file dev.json."""
    record = {"db_id": "shop", "query": "SELECT 1", "question": "?"}
    array(tmp_path / "spider_data/dev.json", [record] * 1034)
    database(tmp_path / "spider_data/database/shop/shop.sqlite")
    for folder in (tmp_path, tmp_path / "spider_data"):
        (found,) = examine(folder)
        assert (found.corpus, found.split, found.ills) == ("spider", "dev", ())
        assert found.title.startswith("Spider dev: 1,034")


def test_ehrsql_is_told_by_its_words(tmp_path: Path, shared_data: Path) -> None:
    """v1.5.1 has the digest of the table; one of the two databases is not the benchmark."""
    lines = (shared_data / "unverified/ehrsql_eicu_valid.jsonl").read_text().splitlines()
    records = [{**json.loads(line), "query": "select 1", "is_impossible": False} for line in lines]
    array(tmp_path / "eicu/valid.json", records)
    database(tmp_path / "eicu/eicu.sqlite")
    assert len(records) == 1117 and EHRSQL_VERSIONS[digest(tmp_path / "eicu/valid.json")] == "v1.5.1"
    (found,) = examine(tmp_path)
    assert found.title.endswith("eicu v1.5.1")
    assert ("mimic_iii is not here, and the benchmark is both", "put its questions into mimic_iii/") in found.ills
    array(tmp_path / "eicu/valid.json", [{**records[0], "question": "other words"}, *records[1:]])
    (found,) = examine(tmp_path)
    assert found.title.endswith("of no known version")


def test_synsql_with_its_line_break_and_own_questions(tmp_path: Path) -> None:
    record = {"db_id": "__\nolive_oil", "question": "?", "sql": "SELECT 1", "external_knowledge": ""}
    array(tmp_path / "syn/data.json", [record])
    database(tmp_path / "syn/databases/__olive_oil/__olive_oil.sqlite")
    (found,) = examine(tmp_path / "syn")
    assert found.corpus == "synsql" and [ill for ill, _ in found.ills] == [
        "1 questions, and published are 2,544,390 (SynSQL-2.5M)"
    ]
    (found,) = examine(own_questions(tmp_path / "own", ["SELECT 1"]))
    assert (found.corpus, found.ills) == ("jsonl", ())


def test_what_cannot_be_used_is_named(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="holds no corpus that is known"):
        examine(tmp_path)
    (tmp_path / "dev.zip").touch()
    with pytest.raises(CorpusError, match=r"holds no corpus, but dev\.zip: unpack it there"):
        examine(tmp_path)
    (tmp_path / "ehrsql-2024/data/mimic_iv").mkdir(parents=True)
    with pytest.raises(CorpusError, match="EHRSQL-2024, another benchmark"):
        examine(tmp_path)
    row = {"schema": "CREATE TABLE a (id)", "question": "How many?", "query": "SELECT 1", "token_count": 3}
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "train.parquet")
    with pytest.raises(CorpusError, match="is SQaLe 1, whose databases have no rows"):
        examine(tmp_path)


def test_every_real_database_is_well(shared_data: Path) -> None:
    files = sorted((shared_data / "databases").glob("*/*.sqlite"))
    assert len(files) > 150 and not {path.name: ill for path in files if (ill := health(path))}
    assert {corpus for corpus, _ in COUNTS} <= set(doctor.LOADERS)
