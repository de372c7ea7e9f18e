"""Full-text tables that index the rows of another table: what they stand on."""

import re

_MODULE = re.compile(r"\bUSING\s+[\"'`\[]?fts[345]\b", re.IGNORECASE)
_CONTENT = re.compile(
    r"""[(,]\s*content\s*=\s*(?:'((?:[^']|'')*+)'|"((?:[^"]|"")*+)"|`((?:[^`]|``)*+)`|\[([^\]]*)\]|([^\s,)'"`\[]+))""",
    re.IGNORECASE,
)
_QUOTES = ("''", '""', "``", "", "")


def content_table(ddl: str) -> str | None:
    """The table or view whose rows a full-text table indexes, as its CREATE statement names it; None: its own rows.

    Such a table holds the words of the other, and no rows.
    """
    module = _MODULE.search(ddl)
    found = _CONTENT.search(ddl, module.end()) if module else None
    if found is None:
        return None
    quoted = zip(found.groups(""), _QUOTES, strict=True)
    # Without a name (content='') the words are the table's own.
    return next((name.replace(twice, twice[:1]) if twice else name for name, twice in quoted if name), None)
