"""The reference page of the configuration, made from the dataclasses: ``sqale-grpo train --keys``."""

import dataclasses
import inspect
import json
from typing import Any

from sqale_grpo.env.markdown import markdown_table
from sqale_grpo.settings.keys import Config

INTRO = """# Configuration

Every key of a run. Files are merged left to right, then `section.key=value` overrides; a key that does not exist is an
error that names the nearest one. This page is printed by `sqale-grpo train --keys`, and a test holds it to the code.

Sources: **card** is the model card, **page** the authors' project page or data library, **earlier** the cards of their
earlier runs, **assumption** a value that nobody published, **ours** a knob of this implementation.
"""


def keys_markdown(kind: type = Config, intro: str = INTRO) -> str:
    """The whole page as Markdown: one table a section, one row a key."""
    pages = [intro, "## Top level\n", _table(dataclasses.fields(kind), "")]
    for section in dataclasses.fields(kind):
        if dataclasses.is_dataclass(section.type):
            pages.append(f"## {section.name}\n\n{inspect.getdoc(section.type)}\n")
            pages.append(_table(dataclasses.fields(section.type), f"{section.name}."))
    return "\n".join(pages)


def _table(fields: tuple[dataclasses.Field[Any], ...], prefix: str) -> str:
    rows = [_row(field, prefix) for field in fields if not dataclasses.is_dataclass(field.type)]
    return markdown_table(["key", "default", "source", "meaning"], rows) + "\n"


def _row(field: dataclasses.Field[Any], prefix: str) -> list[str]:
    default = field.default_factory() if callable(field.default_factory) else field.default
    text = field.metadata["help"] + _bounds(field.metadata)
    return [f"`{prefix}{field.name}`", f"`{json.dumps(default)}`", field.metadata["source"], text]


def _bounds(rules: Any) -> str:
    words = [
        f"{word} {rules[name]:g}"
        for name, word in (("low", "from"), ("above", "over"), ("high", "to"))
        if name in rules
    ]
    if "choices" in rules:
        words.append("one of " + ", ".join(f"`{choice}`" for choice in rules["choices"]))
    return f" ({' '.join(words)})" if words else ""
