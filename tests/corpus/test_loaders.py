"""Each loader on files in its official layout, with the quirks of the published data."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqale

from sqale_grpo.corpus import CorpusError
from sqale_grpo.corpus.ehrsql import CURRENT_TIME, resolve_placeholders
from sqale_grpo.corpus.question import RawQuestion
from sqale_grpo.corpus.sources import LOADERS
from tests.helpers.corpora import database, json_lines, own_questions, sqale_folder, sqale_question, sqale_schema


def read(corpus: str, folder: Path, split: str = "train") -> list[RawQuestion]:
    return list(LOADERS[corpus](folder, split).questions())


# SQaLe ------------------------------------------------------------------------------------------------------------


def test_sqale_phrasings_usable_ones_verbose_first(tmp_path: Path) -> None:
    texts = {
        "s0": {"casual": "hey, which one?", "verbose": " Which one is it? ", "structured": "..."},
        "s1": {"verbose": "**Moderate**", "short_ambiguous": "one?", "casual": "<string>"},
        "s2": {"verbose": "...", "casual": ""},
    }
    rows = [sqale_question(n, "a", "SELECT 1", **styles) for n, styles in enumerate(texts.values())]
    folder = sqale_folder(tmp_path, rows, [[sqale_schema("a", "CREATE TABLE t (a)", {})]])
    found = {q.question_id: q.phrasings for q in read("sqale", folder)}
    assert found == {"s0": ("Which one is it?", "hey, which one?"), "s1": ("one?",), "s2": ()}


def test_sqale_reads_what_its_library_reads(tmp_path: Path) -> None:
    rows = [sqale_question(n, f"db{n % 3}", f"SELECT {n}", verbose=f"v {n}", casual="...") for n in range(40)]
    folder = sqale_folder(tmp_path, rows, [[sqale_schema("db0", "CREATE TABLE t (a)", {})]])
    theirs = sqale.load_questions(str(folder / "queries"), split="train")
    ours = read("sqale", folder)
    assert [(q.question_id, q.db_id, q.gold_sql, q.difficulty) for q in ours] == [
        (q["question_id"], q["schema_id"], q["sql"], q["difficulty"]) for q in theirs
    ]
    assert [q.phrasings[0] for q in ours] == [q["questions"]["verbose"] for q in theirs]


def test_sqale_databases_over_shards_only_the_wanted(tmp_path: Path) -> None:
    shards = [[sqale_schema(f"db{i}", "CREATE TABLE t (a)", {"t": [{"a": i}]})] for i in range(4)]
    folder = sqale_folder(tmp_path, [sqale_question(0, "db2", "SELECT 1")], shards)
    found = dict(LOADERS["sqale"](folder, "train").databases({"db3", "db1", "absent"}))
    assert list(found) == ["db1", "db3"]
    assert sqale.build_database(found["db3"]).execute("SELECT a FROM t").fetchall() == [(3,)]


@pytest.mark.parametrize(
    ("missing", "split", "message"),
    [
        ("queries", "train", "no train parquet file in .*queries"),
        ("schemas", "train", "no train parquet file in .*schemas"),
        ("", "test", "no test parquet file"),
        ("", "dev", "SQaLe has no split 'dev': choose one of train, test"),
    ],
)
def test_sqale_folder_that_is_not_one(tmp_path: Path, missing: str, split: str, message: str) -> None:
    folder = sqale_folder(tmp_path, [sqale_question(0, "a", "SELECT 1")], [[sqale_schema("a", "", {})]])
    if missing:
        (folder / missing).rename(folder / "elsewhere")
    with pytest.raises(CorpusError, match=message):
        LOADERS["sqale"](folder, split)


# BIRD -------------------------------------------------------------------------------------------------------------


def bird_folder(folder: Path) -> Path:
    train = [{"db_id": "shop", "question": "Which?", "evidence": "big means over 1000", "SQL": "SELECT 1"}] * 2
    dev = [
        {"question_id": 7, "db_id": "zoo", "question": "What?", "evidence": "", "SQL": "SELECT 2", "difficulty": "hard"}
    ]
    for path, records in (("train/train.json", train), ("dev_20240627/dev.json", dev)):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(json.dumps(records, indent=2))
    database(folder / "train/train_databases/shop/shop.sqlite")
    database(folder / "dev_20240627/dev_databases/zoo/zoo.sqlite")
    (folder / "train/train_databases/.DS_Store").write_text("junk")
    return folder


def test_bird_train_has_neither_id_nor_difficulty(tmp_path: Path) -> None:
    folder = bird_folder(tmp_path)
    first, second = read("bird", folder)
    assert (first.question_id, second.question_id) == ("bird_train_0", "bird_train_1")
    assert (first.phrasings, first.evidence, first.difficulty) == (("Which?",), "big means over 1000", "")
    assert read("bird", folder / "train") == [first, second]


def test_bird_dev_by_the_name_of_its_release(tmp_path: Path) -> None:
    folder = bird_folder(tmp_path)
    (question,) = read("bird", folder, "dev")
    assert (question.question_id, question.difficulty, question.gold_sql) == ("bird_dev_7", "hard", "SELECT 2")
    (found,) = LOADERS["bird"](folder, "dev").databases({"zoo"})
    assert found == ("zoo", folder / "dev_20240627/dev_databases/zoo/zoo.sqlite")


def test_bird_does_not_guess_between_two_releases(tmp_path: Path) -> None:
    folder = bird_folder(tmp_path)
    (folder / "dev_old").mkdir()
    (folder / "dev_old/dev.json").write_text("[]")
    with pytest.raises(CorpusError, match=r"several dev\.json in .*dev_20240627/dev\.json, .*dev_old/dev\.json; give"):
        read("bird", folder, "dev")
    assert len(read("bird", folder / "dev_20240627", "dev")) == 1


def test_bird_archive_nested_in_itself(tmp_path: Path) -> None:
    folder = bird_folder(tmp_path)
    outer = folder / "train/train_databases"
    outer.rename(folder / "train/inner")
    outer.mkdir()
    (folder / "train/inner").rename(outer / "train_databases")
    assert [db_id for db_id, _ in LOADERS["bird"](folder, "train").databases({"shop"})] == ["shop"]


# SynSQL -----------------------------------------------------------------------------------------------------------


def synsql_record(**changes: str) -> dict[str, str]:
    return {
        "db_id": "farmer's_market",
        "sql_complexity": "Moderate",
        "question_style": "Formal",
        "question": "Which?",
        "external_knowledge": "big: over 1000",
        "cot": "think " * 200,
        "sql": "SELECT 1",
    } | changes


def test_synsql_stream_and_its_keys(tmp_path: Path) -> None:
    (tmp_path / "data.json").write_text(json.dumps([synsql_record(), synsql_record(external_knowledge="")], indent=2))
    path = database(tmp_path / "databases/farmer's_market/farmer's_market.sqlite")
    first, second = read("synsql", tmp_path)
    assert (first.question_id, second.question_id, first.db_id) == ("synsql_0", "synsql_1", "farmer's_market")
    assert (first.evidence, second.evidence, first.difficulty) == ("big: over 1000", "", "Moderate")
    assert list(LOADERS["synsql"](tmp_path, "train").databases({first.db_id})) == [(first.db_id, path)]


# EHRSQL -----------------------------------------------------------------------------------------------------------


def ehrsql_record(query: str | None, **changes: object) -> dict[str, object]:
    record = {
        "db_id": "mimic_iii",
        "question": "How?",
        "template": "t",
        "query": query,
        "is_impossible": False,
        "id": "a1",
    }
    return record | changes


def test_ehrsql_both_databases_and_impossible_questions(tmp_path: Path) -> None:
    for db_id, records in {
        "mimic_iii": [ehrsql_record("select current_time"), ehrsql_record(None, id="a2", is_impossible=True)],
        "eicu": [ehrsql_record("select 1 where 70 between heart_rate_lower and heart_rate_upper", db_id="eicu")],
    }.items():
        (tmp_path / db_id).mkdir()
        (tmp_path / db_id / "valid.json").write_text(json.dumps(records))
        database(tmp_path / db_id / f"{db_id}.sqlite")
    possible, impossible, other = read("ehrsql", tmp_path, "dev")
    assert possible.gold_sql == f"select '{CURRENT_TIME}'"
    assert possible.evidence == f"The current time is {CURRENT_TIME}."
    assert (impossible.dropped, possible.dropped) == ("impossible question", "")
    assert other.gold_sql == "select 1 where 70 between 60.0 and 100.0"
    assert "normal range of heart rate is 60.0 to 100.0" in other.evidence
    assert [q.question_id for q in (possible, impossible, other)] == [
        "ehrsql_mimic_iii_a1",
        "ehrsql_mimic_iii_a2",
        "ehrsql_eicu_a1",
    ]
    assert {db_id for db_id, _ in LOADERS["ehrsql"](tmp_path, "dev").databases({"mimic_iii", "eicu"})} == {
        "mimic_iii",
        "eicu",
    }


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("datetime(CURRENT_TIME,'-1 year')", f"datetime('{CURRENT_TIME}','-1 year')"),
        ("x = 'current_time'", "x = 'current_time'"),
        ("x = 'it''s current_time' and current_time", f"x = 'it''s current_time' and '{CURRENT_TIME}'"),
        ("my_current_time", "my_current_time"),
        ("strftime('%y-%m', t) = '2105-01'", "strftime('%Y-%m', t) = '2105-01'"),
        ("strftime ( '%j',current_time)", f"strftime ( '%J','{CURRENT_TIME}')"),
        ("a like '%y%' and b = '%j'", "a like '%y%' and b = '%j'"),
        ("between mean_bp_lower and mean_bp_upper", "between 60.0 and 110.0"),
        ("unknown_lower", "unknown_lower"),
    ],
)
def test_ehrsql_placeholders(sql: str, expected: str) -> None:
    assert resolve_placeholders(sql) == expected


def test_no_placeholder_is_left_in_real_ehrsql(shared_data: Path) -> None:
    files = sorted((shared_data / "unverified").glob("ehrsql_*.jsonl"))
    queries = [q["sql"] for f in files for q in map(json.loads, f.read_text().splitlines()) if q["sql"]]
    assert len(queries) > 3000 and sum("current_time" in sql for sql in queries) > 1000
    for sql in map(resolve_placeholders, queries):
        assert "current_time" not in sql and "_lower" not in sql and "strftime('%y" not in sql and "'%j'" not in sql


# A user's own ------------------------------------------------------------------------------------------------------


def test_jsonl_optional_keys(tmp_path: Path) -> None:
    database(tmp_path / "shop.db")
    json_lines(tmp_path / "questions.jsonl", [{"db_id": "shop", "question": "Which?", "sql": "SELECT 1"}])
    (question,) = read("jsonl", tmp_path)
    assert question == RawQuestion("line_1", "shop", ("Which?",), "SELECT 1")
    assert list(LOADERS["jsonl"](tmp_path, "train").databases({"shop"})) == [("shop", tmp_path / "shop.db")]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"db_id": "shop", "question": "Which?"}', "questions.jsonl, line 3: no key 'sql'"),
        ('{"db_id": "shop", "question": ["Which?"], "sql": ""}', "line 3: 'question' should be text, not list"),
        ('{"db_id": "", "question": "Which?", "sql": ""}', "line 3: 'db_id' is empty"),
        ('{"db_id": "shop", ', "line 3: not valid JSON"),
        ("[]", "line 3: expected a JSON object, not list"),
        ('{"question_id": ' + "9" * 5000 + "}", "line 3: not valid JSON"),
        ('{"db_id": ' + "[" * 50_000, "line 3: not valid JSON"),
    ],
    ids=["no sql", "list", "no database", "cut", "array", "endless number", "endless nesting"],
)
def test_jsonl_bad_line(tmp_path: Path, line: str, message: str) -> None:
    path = own_questions(tmp_path, ["SELECT 1"]) / "questions.jsonl"
    path.write_text(path.read_text() + "\n" + line + "\n")
    with pytest.raises(CorpusError, match=message):
        read("jsonl", tmp_path)


@pytest.mark.parametrize("corpus", LOADERS)
def test_missing_source(tmp_path: Path, corpus: str) -> None:
    with pytest.raises(CorpusError, match=f"no folder .*nowhere: it should hold the corpus '{corpus}'"):
        LOADERS[corpus](tmp_path / "nowhere", "train")


@pytest.mark.parametrize("corpus", [name for name in LOADERS if name != "sqale"])
def test_empty_source(tmp_path: Path, corpus: str) -> None:
    with pytest.raises(CorpusError, match=str(tmp_path)):
        LOADERS[corpus](tmp_path, "train")


@pytest.mark.parametrize("db_id", ["x" * 300, "a\x00b", ".", "..", "no/where"])
def test_ids_that_can_name_no_file_are_missing_databases(tmp_path: Path, db_id: str) -> None:
    own_questions(tmp_path, ["SELECT 1"])
    assert list(LOADERS["jsonl"](tmp_path, "train").databases({db_id})) == []


def test_missing_databases_are_left_out_and_their_place_is_known(tmp_path: Path) -> None:
    own_questions(tmp_path, ["SELECT 1"])
    source = LOADERS["jsonl"](tmp_path, "train")
    assert [db_id for db_id, _ in source.databases({"shop", "farm", "zoo"})] == ["shop"]
    assert source.place("farm") == f"{tmp_path}/databases/farm.sqlite or {tmp_path}/farm.sqlite"


# Spider -----------------------------------------------------------------------------------------------------------


def spider_folder(folder: Path) -> Path:
    place = folder / "spider_data"
    for name, query in (("train_spider", "SELECT 1"), ("train_others", "SELECT 2"), ("dev", "SELECT 3")):
        place.mkdir(parents=True, exist_ok=True)
        record = {"db_id": "shop", "query": query, "query_toks": [], "question": " Which? ", "sql": {"from": {}}}
        (place / f"{name}.json").write_text(json.dumps([record]))
    database(place / "database/shop/shop.sqlite")
    return folder


def test_spider_splits_and_its_numbers(tmp_path: Path) -> None:
    folder = spider_folder(tmp_path)
    first, second = read("spider", folder)
    assert (first.question_id, first.gold_sql, first.phrasings) == ("spider_train_0", "SELECT 1", ("Which?",))
    assert (second.question_id, second.gold_sql) == ("spider_others_0", "SELECT 2")
    assert [each.question_id for each in read("spider", folder / "spider_data", "dev")] == ["spider_dev_0"]
    assert [db_id for db_id, _ in LOADERS["spider"](folder, "dev").databases({"shop"})] == ["shop"]
    with pytest.raises(CorpusError, match=r"no test\.json in .* or in its folder spider_data/: unpack"):
        LOADERS["spider"](folder, "test")


# Real layouts -----------------------------------------------------------------------------------------------------


def test_bird_mini_dev_is_a_split_of_its_own(tmp_path: Path) -> None:
    """The archive's folder is MINIDEV, and its questions are not dev's: dev's gold queries differ."""
    record = {"question_id": 1471, "db_id": "shop", "question": "?", "evidence": "", "SQL": "SELECT 1"}
    (tmp_path / "MINIDEV").mkdir()
    (tmp_path / "MINIDEV/mini_dev_sqlite.json").write_text(json.dumps([record]))
    database(tmp_path / "MINIDEV/dev_databases/shop/shop.sqlite")
    for folder in (tmp_path, tmp_path / "MINIDEV"):
        assert [each.question_id for each in read("bird", folder, "mini_dev")] == ["bird_mini_dev_1471"]
        assert [db_id for db_id, _ in LOADERS["bird"](folder, "mini_dev").databases({"shop"})] == ["shop"]
    with pytest.raises(CorpusError, match=r"no dev\.json in .*: it holds the split mini_dev: add --split mini_dev"):
        LOADERS["bird"](tmp_path, "dev")


def test_bird_filtered_train_and_a_dated_dev(tmp_path: Path) -> None:
    record = {"db_id": "shop", "question": "?", "evidence": "", "SQL": "SELECT 1", "question_id": 17}
    for name in ("train-filtered/train.json", "bird_sql_dev/dev_20251106.json"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(json.dumps([record]))
    assert [each.question_id for each in read("bird", tmp_path)] == ["bird_train_17"]
    assert [each.question_id for each in read("bird", tmp_path / "bird_sql_dev", "dev")] == ["bird_dev_17"]


def test_sqale_under_the_names_of_its_library(tmp_path: Path) -> None:
    schemas = [[sqale_schema("a", "CREATE TABLE t (a)", {})]]
    folder = sqale_folder(tmp_path, [sqale_question(0, "a", "SELECT 1")], schemas)
    (folder / "queries").rename(folder / "sqale2_queries")
    (folder / "schemas").rename(folder / "sqale2_schemas")
    assert [each.question_id for each in read("sqale", folder)] == ["s0"]
    assert [db_id for db_id, _ in LOADERS["sqale"](folder, "train").databases({"a"})] == ["a"]


def test_the_second_release_of_sqale_is_one_table(tmp_path: Path) -> None:
    """SQaLe_2 has all in one table, with blanks in its names and a misspelt one."""
    whole = {**sqale_question(0, "a", "SELECT 1"), **sqale_schema("a", "CREATE TABLE t (a)", {"t": [{"a": 1}]})}
    names = {"schema_id": "schema id", "sql": "sql statament", "full_schema": "Full schema"}
    names |= {"schema_content": "Schema content", "question_id": "question id"}
    table = pa.Table.from_pylist([{names.get(key, key): value for key, value in whole.items()}])
    pq.write_table(table, tmp_path / "train-00000-of-00001.parquet")
    (question,) = read("sqale", tmp_path)
    assert (question.question_id, question.gold_sql) == ("s0", "SELECT 1")
    assert [db_id for db_id, _ in LOADERS["sqale"](tmp_path, "train").databases({"a"})] == ["a"]


def test_the_first_release_of_sqale_has_no_rows_and_says_so(tmp_path: Path) -> None:
    row = {"schema": "CREATE TABLE a (id)", "question": "How many?", "query": "SELECT 1", "token_count": 3}
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "train-00000-of-00001.parquet")
    with pytest.raises(CorpusError, match=r"is SQaLe 1, whose databases have no rows.*download SQaLe 2"):
        LOADERS["sqale"](tmp_path, "train")


NEWLINE = "__\nolive_oil"
APOSTROPHE = "alzheimer's_disease"


def test_synsql_as_unzip_leaves_it(tmp_path: Path) -> None:
    """One published id holds a line break, which Info-ZIP takes out of the folder's name and Python's zipfile keeps."""
    records = [synsql_record(db_id=db_id) for db_id in (NEWLINE, APOSTROPHE, "kept\nhere")]
    (tmp_path / "data.json").write_text(json.dumps(records))
    for name in ("__olive_oil", APOSTROPHE, "kept\nhere"):
        database(tmp_path / "databases" / name / f"{name}.sqlite")
    source = LOADERS["synsql"](tmp_path, "train")
    found = {db_id: path.stem for db_id, path in source.databases({NEWLINE, APOSTROPHE, "kept\nhere", "gone\n"})}
    assert found == {NEWLINE: "__olive_oil", APOSTROPHE: APOSTROPHE, "kept\nhere": "kept\nhere"}
    assert "\n" not in source.place("gone\n")


@pytest.mark.parametrize("name", ["Shop.sqlite", "shop.sqlite3", "SHOP.db"])
def test_own_files_by_any_case_and_usual_suffix(tmp_path: Path, name: str) -> None:
    path = database(tmp_path / name)
    json_lines(tmp_path / "questions.jsonl", [{"db_id": "shop", "question": "?", "sql": "SELECT 1"}])
    assert list(LOADERS["jsonl"](tmp_path, "train").databases({"shop"})) == [("shop", path)]


def test_two_files_that_differ_in_case_are_not_guessed_between(tmp_path: Path) -> None:
    for name in ("Shop.sqlite", "SHOP.sqlite"):
        database(tmp_path / name)
    json_lines(tmp_path / "questions.jsonl", [{"db_id": "shop", "question": "?", "sql": "SELECT 1"}])
    source = LOADERS["jsonl"](tmp_path, "train")
    assert list(source.databases({"shop"})) == []
    assert [db_id for db_id, _ in source.databases({"Shop"})] == ["Shop"]
