"""Streams of JSON records: across chunks, and one clear error for each way in which a file can be broken."""

import json
from pathlib import Path

import pytest

from sqale_grpo.corpus import CorpusError
from sqale_grpo.corpus.json_stream import read_json_array, read_json_lines


def test_json_array_across_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = [{"n": n, "text": 'é\\" ]},' * (n % 7)} for n in range(200)]
    (tmp_path / "a.json").write_text(json.dumps(records, indent=1, ensure_ascii=False))
    monkeypatch.setattr("sqale_grpo.corpus.json_stream.CHUNK", 13)
    assert list(read_json_array(tmp_path / "a.json")) == records


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1}', "does not hold a JSON array"),
        ('[{"a": 1}, {"a": }]', "record 1: not valid JSON"),
        ('[{"a": 1}', "record 1: not valid JSON"),
        ("[3]", "record 0: expected a JSON object, not int"),
        ("", "does not hold a JSON array"),
        ('[{"a": 1}, {"a": ' + "9" * 5000 + "}]", "record 1: not valid JSON"),
        ("[" + '{"a": ' * 50_000, "record 0: not valid JSON"),
    ],
    ids=["object", "no value", "no end", "number", "empty", "endless number", "endless nesting"],
)
def test_json_array_that_is_broken(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(CorpusError, match=message):
        list(read_json_array(tmp_path / "a.json"))


@pytest.mark.parametrize("rest", ["[]", '{"a": 2}', "x"])
def test_text_after_a_json_array_is_not_lost_in_silence(tmp_path: Path, rest: str) -> None:
    (tmp_path / "a.json").write_text('[{"a": 1}]\n' + rest)
    with pytest.raises(CorpusError, match="text after the end of the array"):
        list(read_json_array(tmp_path / "a.json"))


def test_text_that_is_not_utf_8_is_named(tmp_path: Path) -> None:
    """Read with replacements, 'Köln' would find no row, and the question would be kept with an empty gold."""
    path = tmp_path / "questions.jsonl"
    line = '{"db_id": "shop", "question": "?", "sql": "SELECT \'Köln\'"}\n'
    path.write_bytes(b'{"a": 1}\n' + line.encode("latin-1"))
    with pytest.raises(CorpusError, match=r"questions\.jsonl, line 2: not UTF-8: convert the file"):
        list(read_json_lines(path))
    (tmp_path / "a.json").write_bytes(('[{"a": 1}, ' + line + "]").encode("latin-1"))
    with pytest.raises(CorpusError, match=r"a\.json, record \d: not UTF-8: convert the file"):
        list(read_json_array(tmp_path / "a.json"))
