"""The texts of the protocol: one JSON file holds every word that a policy reads besides tool results.

``env/prompts.json`` is the project's own (the authors' exact prompts are not public: our assumption); a file of the
same keys replaces it.
"""

import json
import re
from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path

OWN_FILE = Path(__file__).with_name("prompts.json")

# Placeholders of each text: those that it must hold, and those that it may hold.
_PLACEHOLDERS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "system": ((), ("tool_turns",)),
    "user": (("question", "evidence"), ("tool_turns",)),
    "evidence": (("evidence",), ()),
    "message": (("results", "next"), ()),
    "numbered_result": (("number", "count", "result"), ()),
    "budget_many": (("turns",), ()),
    "budget_one": ((), ("turns",)),
    "gate_refusal": ((), ()),
    "final_turn": (("query",), ()),
    "final_turn_without_query": ((), ()),
}
_KNOWN = {name for required, optional in _PLACEHOLDERS.values() for name in (*required, *optional)}
_PLACEHOLDER = re.compile(r"\{(" + "|".join(sorted(_KNOWN)) + r")\}")


@dataclass(frozen=True)
class Prompts:
    """The templates, filled by the methods. Braces that are no known placeholder stand for themselves."""

    system: str
    user: str
    evidence: str
    message: str
    numbered_result: str
    budget_many: str
    budget_one: str
    gate_refusal: str
    final_turn: str
    final_turn_without_query: str

    def first_messages(self, question: str, evidence: str, tool_turns: int) -> list[dict[str, str]]:
        """System and user message; ``evidence`` may be empty."""
        hint = _fill(self.evidence, evidence=evidence) if evidence.strip() else ""
        system = _fill(self.system, tool_turns=tool_turns)
        user = _fill(self.user, question=question, evidence=hint, tool_turns=tool_turns)
        return [{"role": "system", "content": system}, {"role": "user", "content": user}]

    def result_message(self, results: list[str], turns_left: int) -> str:
        """The user turn after a tool turn: all results in one message, then the budget."""
        line = self.budget_one if turns_left == 1 else self.budget_many
        return _fill(self.message, results=self._numbered(results), next=_fill(line, turns=turns_left))

    def final_message(self, results: list[str], working_query: str | None) -> str:
        """The user turn that asks for the answer and shows the last query that ran without error, if there is one."""
        if working_query is None:
            request = self.final_turn_without_query
        else:
            request = _fill(self.final_turn, query=working_query)
        return _fill(self.message, results=self._numbered(results), next=request)

    def _numbered(self, results: list[str]) -> str:
        if len(results) == 1:
            return results[0]
        count = len(results)
        return "\n".join(
            _fill(self.numbered_result, number=number, count=count, result=result)
            for number, result in enumerate(results, 1)
        )


def load_prompts(path: str | Path | None = None) -> Prompts:
    """Read and check a prompts file, the project's own for None.

    Raises FileNotFoundError, or ValueError that names file and key: no JSON object, a key missing, unknown or no text,
    a placeholder that is missing or is never filled there.
    """
    return _load_own() if path is None else _load(Path(path))


@lru_cache(maxsize=1)
def _load_own() -> Prompts:
    return _load(OWN_FILE)


def _load(file: Path) -> Prompts:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(f"no prompts file at {file}; a copy of {OWN_FILE} is a start") from None
    except ValueError as error:
        raise ValueError(f"prompts file {file} is not valid JSON: {error}") from error
    if not isinstance(found, dict):
        raise ValueError(f"prompts file {file} must hold one JSON object of texts")
    _check_keys(file, found)
    for key, text in found.items():
        _check_text(file, key, text)
    return Prompts(**found)


def _check_keys(file: Path, found: dict[str, object]) -> None:
    wanted = [field.name for field in fields(Prompts)]
    for key in found:
        if key not in wanted:
            close = get_close_matches(key, wanted, n=1, cutoff=0)
            raise ValueError(f"prompts file {file} has an unknown key {key!r}; the nearest one is {close[0]!r}")
    for key in wanted:
        if key not in found:
            raise ValueError(f"prompts file {file} lacks the key {key!r}; {OWN_FILE} has all of them")


def _check_text(file: Path, key: str, text: object) -> None:
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"prompts file {file}: {key!r} must be a text that is not empty")
    required, optional = _PLACEHOLDERS[key]
    used = set(_PLACEHOLDER.findall(text))
    for name in required:
        if name not in used:
            raise ValueError(f"prompts file {file}: {key!r} lacks the placeholder {{{name}}}")
    for name in sorted(used - {*required, *optional}):
        raise ValueError(f"prompts file {file}: {key!r} has the placeholder {{{name}}}, which is not filled there")


def _fill(template: str, **values: object) -> str:
    """One pass, so that a value that looks like a placeholder stays as it is."""
    return _PLACEHOLDER.sub(lambda match: str(values[match[1]]), template)
