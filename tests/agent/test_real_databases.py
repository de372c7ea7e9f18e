"""Real databases through the command line: umlauts, spaces in names, 371 tables. Skips where they are not at hand."""

import json

import pytest

DATABASES = ("northwind", "musicbrainz", "mondial", "openmrs")


@pytest.fixture(scope="module")
def databases(shared_data):
    """Those above, and the ones with umlauts in their identifiers."""
    found = {path.stem: path for path in sorted((shared_data / "databases").glob("*/*.sqlite"))}
    umlauts = [path for path in found.values() if "ü" in path.read_bytes().decode("utf-8", "replace")][:3]
    return [*(found[name] for name in DATABASES), *umlauts]


def test_the_command_line_opens_them(agent_module, databases, tiny_model, tmp_path, capsys):
    lines = [json.dumps({"question": "Wie viele Züge?", "db": str(database)}) for database in databases]
    (tmp_path / "questions.jsonl").write_text("\n".join(lines))
    arguments = ["--model", str(tiny_model), "--questions", str(tmp_path / "questions.jsonl"), "--json"]
    short = ["--backend", "transformers", "--max-turn-tokens", "4", "--tool-turns", "1"]
    assert agent_module.main([*arguments, *short]) == 0
    results = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [result["database"] for result in results] == list(map(str, databases))
    assert all(result["turns"] == 2 for result in results)


def test_every_tool_answers_for_every_table(agent_module, databases):
    """Names as list_tables gives them are names that the other tools take."""
    for database in databases:
        with agent_module.open_database(database, agent_module.SETTINGS.query) as sandbox:
            tables = sandbox.schema.tables
            assert tables
            calls = [agent_module.ToolCall("list_tables", {}), agent_module.ToolCall("foreign_keys", {})]
            for table in tables:
                calls.append(agent_module.ToolCall("describe_table", {"table_name": table}))
                calls.append(agent_module.ToolCall("sample_rows", {"table_name": table, "limit": 2}))
                column = {"table_name": table, "column_name": sandbox.schema.columns(table)[0]}
                calls.append(agent_module.ToolCall("distinct_values", column))
            results = agent_module.run_tools(calls, sandbox, agent_module.EpisodeLimits())
            assert [result.text for result in results if result.error] == []
