"""The command line: what it answers, and one clear sentence for whatever keeps it from starting."""

import io
import json
import os
import shutil
import sqlite3
import subprocess
import sys

import pytest
from safetensors.torch import load_file, save_file

from sqale_grpo.env.text import harmless

SHORT = ["--backend", "transformers", "--max-turn-tokens", "8", "--tool-turns", "1"]


@pytest.fixture
def ask(agent_module, tiny_model, capsys):
    """Run the command line in this process; returns (exit status, stdout, stderr)."""

    def run(*arguments, model=tiny_model, question=("--question", "How many shops?")):
        words = ["--model", str(model), *question, *SHORT, *map(str, arguments)]
        status = agent_module.run_program(lambda: agent_module.main(words))
        return status, *capsys.readouterr()

    return run


def test_a_question_gives_sql_rows_and_how_it_ended(ask, shop):
    status, out, _ = ask("--db", shop)
    assert status == 0
    assert "Ended    by final_turn after 2 turns" in out and "SQL" in out


def test_json_is_one_line_with_the_whole_trace(ask, shop):
    status, out, _ = ask("--db", shop, "--json", "--evidence", "a shop is a shop")
    result = json.loads(out)
    assert status == 0 and out.count("\n") == 1
    assert {"sql", "rows", "columns", "ended_by", "turns", "trace", "error"} <= set(result)
    assert result["turns"] == len(result["trace"]) == 2
    assert "no tool call found" in result["trace"][0]["observation"]


def test_several_candidates_draw_apart_and_vote(ask, shop):
    status, out, _ = ask("--db", shop, "--candidates", 3, "--sure", 0.9, "--json")
    found = json.loads(out)
    assert status == 0 and (found["candidates"], found["threshold"]) == (3, 0.9)
    assert (found["is_sure"], found["agreement"], found["votes"]) == (False, 0.0, []), "it writes no query that runs"


def test_the_trace_shows_every_turn_and_its_result(ask, shop):
    _, out, _ = ask("--db", shop, "--trace", "--color", "always", "--evidence", "a hint")
    assert all(f"Turn {number}" in out for number in (1, 2)) and "\x1b[36m" in out and "Hint     a hint" in out
    _, plain, _ = ask("--db", shop, "--trace")
    assert "\x1b" not in plain


def test_the_same_seed_gives_the_same_answer_and_another_one_another(ask, shop):
    traces = [json.loads(ask("--db", shop, "--json", "--seed", seed)[1])["trace"] for seed in (1, 1, 2)]
    answers = [[turn["completion"] for turn in trace] for trace in traces]
    assert answers[0] == answers[1] != answers[2]


def test_questions_of_a_file_come_back_in_its_order(ask, shop, tmp_path):
    shutil.copy(shop, tmp_path / "other.sqlite")
    lines = ["How many shops?", "", '{"question": "Which cities?", "db": "other.sqlite", "evidence": "oslo"}']
    (tmp_path / "questions.txt").write_text("\n".join(lines))
    asked = ("--questions", str(tmp_path / "questions.txt"))
    status, out, _ = ask("--db", shop, "--json", question=asked)
    results = [json.loads(line) for line in out.splitlines()]
    assert status == 0
    assert [result["question"] for result in results] == ["How many shops?", "Which cities?"]
    assert [result["database"] for result in results] == [str(shop), str(tmp_path / "other.sqlite")]
    _, out, _ = ask("--db", shop, "--trace", question=asked)
    assert out.count("Question") == out.count("Ended") == 2 and out.count("Turn 1") == 2


def test_text_that_no_tokenizer_takes_is_asked_all_the_same(ask, shop, tmp_path):
    lines = ['{"question": "a \\ud800 b"}', '{"question": "a\u2028b"}', "\x85c\x0bd"]
    (tmp_path / "questions.txt").write_text("\n".join(lines), encoding="utf-8")
    asked = ("--questions", str(tmp_path / "questions.txt"))
    status, out, _ = ask("--db", shop, "--json", "--evidence", "\udcff", question=asked)
    assert status == 0
    assert [json.loads(line)["question"] for line in out.split("\n")[:-1]] == ["a \ud800 b", "a\u2028b", "c\x0bd"]


@pytest.mark.long
def test_a_reader_that_has_enough_ends_it_in_silence(agent_file, tiny_model, shop):
    command = [sys.executable, "-I", str(agent_file), "--model", str(tiny_model), "--db", str(shop), *SHORT, "--json"]
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*command, "--question", "How many?"], stdout=writer, stderr=subprocess.PIPE, text=True, timeout=300
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


def test_a_conversation_ends_with_an_empty_line(ask, shop, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("How many shops?\nWhich cities?\n\nnot read"))
    status, out, _ = ask("--db", shop, "--json", question=("--interactive",))
    assert status == 0
    assert [json.loads(line)["question"] for line in out.splitlines()] == ["How many shops?", "Which cities?"]


@pytest.mark.long
def test_it_runs_alone_in_an_empty_folder(agent_file, tiny_model, shop, tmp_path):
    shutil.copy(agent_file, tmp_path / "sqale_agent.py")
    command = [sys.executable, "-I", "sqale_agent.py", "--model", str(tiny_model), "--db", str(shop), *SHORT]
    done = subprocess.run(
        [*command, "--question", "How many?", "--json"], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["turns"] == 2
    assert [path.name for path in tmp_path.iterdir()] == ["sqale_agent.py"], "it writes nothing beside itself"


# What keeps it from starting


def assert_sentence(result, *words):
    status, out, error = result
    assert status == 2 and not out
    assert error.startswith("error: ") and error.count("\n") == 1 and "Traceback" not in error
    assert all(word in error for word in words), error


def test_a_path_without_a_database_is_named(ask, tmp_path):
    assert_sentence(ask("--db", tmp_path / "gone.sqlite"), "no database file", "gone.sqlite")
    assert_sentence(ask("--db", tmp_path), "no database file")


@pytest.mark.parametrize("content", [b"name,city\nada,oslo\n" * 100, bytes(range(256)) * 16], ids=["text", "encrypted"])
def test_a_file_that_is_no_sqlite_database_is_named(ask, tmp_path, content):
    (tmp_path / "shop.sqlite").write_bytes(content)
    assert_sentence(ask("--db", tmp_path / "shop.sqlite"), "shop.sqlite", "not a database", "encrypted")


def test_a_file_without_a_table_is_named(ask, tmp_path):
    (tmp_path / "empty.sqlite").touch()
    assert_sentence(ask("--db", tmp_path / "empty.sqlite", "--model", tmp_path / "gone"), "empty.sqlite", "no table")


def test_a_damaged_database_is_named(ask, shop, tmp_path):
    (tmp_path / "cut.sqlite").write_bytes(shop.read_bytes()[:2000])
    assert_sentence(ask("--db", tmp_path / "cut.sqlite"), "cut.sqlite")


def test_a_database_that_another_program_writes_is_read(ask, tmp_path):
    """A write-ahead log in use is read with the database; a change that is only being prepared is no bar."""
    for mode in ("wal", "delete"):
        path = tmp_path / f"{mode}.sqlite"
        with sqlite3.connect(path, isolation_level=None) as writer:
            writer.execute(f"PRAGMA journal_mode={mode}")
            writer.execute("CREATE TABLE t (a)")
            writer.execute("INSERT INTO t VALUES (1)")
            if mode == "delete":
                writer.execute("BEGIN IMMEDIATE")
            assert ask("--db", path)[0] == 0, mode
        writer.close()


@pytest.mark.long
def test_changes_that_were_left_behind_are_named(ask, tmp_path):
    source, path = tmp_path / "live.sqlite", tmp_path / "copy.sqlite"
    with sqlite3.connect(source, isolation_level=None) as writer:
        writer.execute("PRAGMA journal_mode=wal")
        writer.execute("CREATE TABLE t (a)")
        shutil.copy(source, path)
        shutil.copy(f"{source}-wal", f"{path}-wal")
    writer.close()
    assert_sentence(ask("--db", path), "copy.sqlite-wal", "wal_checkpoint")
    with sqlite3.connect(tmp_path / "half.sqlite", isolation_level=None) as writer:
        writer.execute("CREATE TABLE t (a)")
        writer.execute("PRAGMA cache_size=1")
        writer.execute("BEGIN")
        writer.executemany("INSERT INTO t VALUES (?)", [("x" * 3000,)] * 200)
        assert_sentence(ask("--db", tmp_path / "half.sqlite"), "half.sqlite", "database is locked by a program")
        for end in ("", "-journal"):
            shutil.copy(tmp_path / f"half.sqlite{end}", tmp_path / f"left.sqlite{end}")
    writer.close()
    assert_sentence(ask("--db", tmp_path / "left.sqlite"), "left.sqlite-journal", "did not complete")


def test_a_model_that_is_not_there_is_named(ask, shop, tmp_path):
    assert_sentence(ask("--db", shop, model=tmp_path / "gone"), "no model at", "gone")
    assert_sentence(ask("--db", shop, model=tmp_path), "config.json")
    assert_sentence(ask("--db", shop, model="nobody/no-such-model"), "nobody/no-such-model", "cannot be loaded")
    (tmp_path / "config.json").write_text("{}")
    assert_sentence(ask("--db", shop, model=tmp_path), "cannot be loaded")


def test_a_model_with_a_damaged_file_is_named(ask, shop, tiny_model, tmp_path):
    weights = (tiny_model / "model.safetensors").read_bytes()
    for number, (name, content) in enumerate(
        [("model.safetensors", weights[:-100]), ("model.safetensors", b""), ("tokenizer.json", b'{"a": 1}')]
        + [("chat_template.jinja", b"{% if %}"), ("config.json", b"[]")]
    ):
        folder = shutil.copytree(tiny_model, tmp_path / str(number))
        (folder / name).write_bytes(content)
        assert_sentence(ask("--db", shop, model=folder), str(folder), "cannot be loaded")


def test_a_model_that_lacks_a_tensor_is_not_run_on_random_numbers(ask, shop, tiny_model, tmp_path):
    folder = shutil.copytree(tiny_model, tmp_path / "cut")
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.3.self_attn.q_proj.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    assert_sentence(ask("--db", shop, model=folder), "layers.3.self_attn.q_proj.weight")


def test_a_backend_that_is_not_installed_is_named(agent_file, shop, tiny_model):
    """Without site-packages there is neither torch nor vLLM."""
    for backend, package in (("vllm", "vllm"), ("transformers", "torch and transformers")):
        command = [sys.executable, "-I", "-S", str(agent_file), "--model", str(tiny_model), "--db", str(shop)]
        done = subprocess.run(
            [*command, "--question", "How many?", "--backend", backend], capture_output=True, text=True, timeout=60
        )
        assert_sentence((done.returncode, done.stdout, done.stderr), f"needs {package}", "pip install")


def test_questions_and_options_that_make_no_sense_are_named(ask, shop, tmp_path):
    assert_sentence(ask(), "--db")
    assert_sentence(ask("--db", shop, question=("--question", " ")), "empty")
    assert_sentence(ask("--db", shop, "--top-p", 0), "--top-p")
    assert_sentence(ask("--db", shop, "--temperature", -1), "--temperature")
    assert_sentence(ask("--db", shop, "--candidates", 2, "--sure", 1.5), "--sure", "share")
    assert_sentence(ask("--db", shop, "--sure", 0.5), "--sure", "--candidates")
    assert_sentence(ask("--db", shop, "--candidates", 2, "--temperature", 0), "--candidates", "--temperature 0")
    # Before a model is loaded: this one does not exist.
    for seconds in ("nan", "-1", "inf", "0"):
        assert_sentence(ask("--db", shop, f"--seconds={seconds}", "--model", tmp_path / "gone"), "--seconds")
    assert_sentence(ask("--db", shop, "--prompts", tmp_path / "gone.json"), "gone.json")
    file = tmp_path / "questions.jsonl"
    asked = ("--questions", str(file))
    assert_sentence(ask("--db", shop, question=asked), "questions.jsonl")
    for content, words in (
        ("\n", ("no question",)),
        ("How many?\n{", ("line 2", "not valid JSON")),
        ('{"question": ""}', ("line 1", '"question"')),
        ('{"question": "a", "db": 3}', ("line 1", '"db"')),
        ('{"question": "a", "evidence": [1]}', ("line 1", '"evidence"')),
        ('{"question": ' + "[" * 100_000, ("line 1", "not valid JSON")),
    ):
        file.write_text(content)
        assert_sentence(ask("--db", shop, question=asked), *words)
    file.write_text("How many?")
    assert_sentence(ask(question=asked), "line 1 names no database")
    for arguments in (["--rows", "0"], ["--seconds", "x"], ["--backend", "mlx"]):
        with pytest.raises(SystemExit) as stopped:
            ask("--db", shop, *arguments)
        assert stopped.value.code == 2


# What a terminal shows


def test_text_of_strangers_moves_nothing_on_a_terminal(agent_module):
    hostile = "a\x1b[2Jb\x07\r\u202ec\u2028d\x9b\udc80 grün \U0001f469\u200d\U0001f4bb\n\tend"
    assert harmless(hostile) == (
        "a\\x1b[2Jb\\x07\\x0d\\u202ec\\u2028d\\x9b\\udc80 grün \U0001f469\u200d\U0001f4bb\n\tend"
    )
    out = io.StringIO()
    printer = agent_module.Printer(out, colour=False)
    printer.question(hostile, hostile, hostile)
    call = {"tool": "run_query", "args": {"sql": hostile}, "result": hostile, "error": None}
    printer.turn(1, {"completion": f"{hostile}</think>{hostile}", "calls": [call], "observation": hostile})
    answer = {"sql": hostile, "error": None, "columns": [hostile], "rows": [(hostile,)], "truncated": True}
    ended = {"ended_by": "submit_sql", "turns": 1, "calls": 1, "seconds": 0.1}
    printer.answer({**answer, **ended, "candidates": 1, "is_sure": None})
    votes = {"agreement": 0.5, "threshold": 0.6, "votes": [{**answer, "count": 1}] * 2, "difference": hostile}
    printer.answer({**answer, **ended, "candidates": 2, "is_sure": False, **votes})
    assert not {"\x1b", "\r", "\x07", "\x9b", "\u202e", "\u2028", "\udc80"} & set(out.getvalue())


def test_json_takes_every_value_that_sqlite_has(agent_module):
    rows = [(1, 2.5, "x\udc80", b"\x00\xff", None, float("inf"))]
    result = json.loads(agent_module.to_json({"rows": rows, "sql": "SELECT 1", "prompt_ids": [1]}))
    assert result == {"rows": [[1, 2.5, "x\udc80", "x'00FF'", None, "inf"]], "sql": "SELECT 1"}
