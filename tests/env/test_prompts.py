"""Prompts: the project's own file, other files, and what is wrong with a bad one."""

import json

import pytest

from sqale_grpo.env.episode import Episode, EpisodeLimits
from sqale_grpo.env.prompts import OWN_FILE, load_prompts
from sqale_grpo.env.protocol import SIGNATURES

OWN = json.loads(OWN_FILE.read_text(encoding="utf-8"))


def write(tmp_path, texts: object):
    file = tmp_path / "prompts.json"
    file.write_text(json.dumps(texts), encoding="utf-8")
    return file


def test_the_own_prompts_name_every_tool_and_argument():
    """The card's list_tables takes none; the line under a cut list names the one that goes on with it."""
    for tool, signature in SIGNATURES.items():
        arguments = "" if tool == "list_tables" else ", ".join(signature)
        assert f"- {tool}({arguments}):" in OWN["system"]


def test_the_published_texts():
    prompts = load_prompts()
    assert prompts.result_message(["x"], 4) == "Tool result:\nx\n\n[4 tool turns left before you must answer]"
    assert prompts.result_message(["x", "y"], 1) == (
        "Tool result:\n(1/2)\nx\n(2/2)\ny\n\n[1 tool turn left before you must answer]"
    )


def test_every_text_comes_from_the_file(tmp_path, shop):
    texts = {
        "system": "S {tool_turns}",
        "user": "U {question}{evidence}{tool_turns}",
        "evidence": " E {evidence} ",
        "message": "R {results} {next}",
        "numbered_result": "#{number} of {count}: {result}",
        "budget_many": "{turns} more",
        "budget_one": "last but {turns}",
        "gate_refusal": "No.",
        "final_turn": "Now; had {query}",
        "final_turn_without_query": "Now",
    }
    prompts = load_prompts(write(tmp_path, texts))
    episode = Episode("q?", shop, EpisodeLimits(tool_turns=4), gated=True, evidence="e", prompts=prompts)
    assert [message["content"] for message in episode.prompt()] == ["S 4", "U q? E e 4"]
    submit, path = ('{"tool": "submit_sql", "args": {"sql": "SELECT 1"}}',
                    '{"tool": "join_path", "args": {"table_a": "empty", "table_b": "empty"}}')  # fmt: skip
    assert episode.step(submit).text == "R No. 3 more"
    assert episode.step(path * 2).text == "R #1 of 2: empty\n#2 of 2: empty 2 more"
    assert episode.step(path).text == "R empty last but 1"
    assert episode.step(path).text == "R empty Now"
    assert prompts.final_message(["r"], "SELECT '{next}'") == "R r Now; had SELECT '{next}'"


def test_values_that_look_like_placeholders_stay_as_they_are():
    assert "{next} {turns} {query}" in load_prompts().result_message(["{next} {turns} {query}"], 3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"user": "Question: {question}"}, r"'user' lacks the placeholder \{evidence\}"),
        ({"final_turn": "Now."}, r"'final_turn' lacks the placeholder \{query\}"),
        ({"budget_many": "many left"}, r"'budget_many' lacks the placeholder \{turns\}"),
        ({"system": "Answer {question}"}, r"'system' has the placeholder \{question\}, which is not filled there"),
        ({"gate_refusal": ""}, "'gate_refusal' must be a text that is not empty"),
        ({"message": ["{results}"]}, "'message' must be a text"),
        ({"budgets": "x"}, "has an unknown key 'budgets'; the nearest one is 'budget_"),
        ({"evidence": None}, "'evidence' must be a text"),
    ],
)
def test_a_bad_text_is_named_with_file_and_key(tmp_path, change, message):
    with pytest.raises(ValueError, match=r"prompts file .*prompts\.json.*" + message):
        load_prompts(write(tmp_path, OWN | change))


@pytest.mark.parametrize("key", OWN)
def test_a_missing_key_is_named(tmp_path, key):
    texts = {name: text for name, text in OWN.items() if name != key}
    with pytest.raises(ValueError, match=f"prompts.json lacks the key '{key}'"):
        load_prompts(write(tmp_path, texts))


def test_no_file_no_json_no_object(tmp_path):
    with pytest.raises(FileNotFoundError, match="no prompts file at .*gone.json; a copy of .*prompts.json is a start"):
        load_prompts(tmp_path / "gone.json")
    with pytest.raises(ValueError, match="must hold one JSON object"):
        load_prompts(write(tmp_path, ["text"]))
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(ValueError, match="broken.json is not valid JSON: .*line 1"):
        load_prompts(tmp_path / "broken.json")
