"""Case file toolcall.jsonl: which calls and which errors a completion holds."""

from sqale_grpo.env.protocol import CallError, ToolCall, parse_turn


def test_entries(case):
    found = parse_turn(case["completion_text"])
    calls = [{"tool": entry.tool, "args": entry.args} for entry in found if isinstance(entry, ToolCall)]
    errors = [entry.kind for entry in found if isinstance(entry, CallError)]
    assert calls == case["expect_calls"]
    first = errors[0] if errors else None
    assert first in (case.get("accept_errors") or [case["expect_error"]])
    # Where other errors are accepted too, any of them may stand in the list; a turn without objects has no entries.
    accepted = set(case.get("accept_errors") or [])
    expected = [entry.get("error") or entry["tool"] for entry in case["expect_entries"]]
    got = [entry.kind if isinstance(entry, CallError) else entry.tool for entry in found]
    got = [entry for entry in got if entry != "no_call"]
    if not accepted:
        assert got == expected
    else:
        assert [e for e in got if e not in accepted] == [e for e in expected if e not in accepted]
