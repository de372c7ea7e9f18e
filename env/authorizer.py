"""What a statement may touch: reading this database's own tables, and nothing else.

SQLite asks an authorizer for everything that a statement would do while it compiles it. Ours allows by list: SELECT,
recursion, the tables of the file, harmless PRAGMAs, functions that do not reach the host. It notes on the way which
tables are read and which functions are called.
"""

import sqlite3
from collections.abc import Callable, Iterable

from sqale_grpo.env.formats import FORMATS
from sqale_grpo.env.text import fold_name

# Read something about the schema, change nothing. data_version is what full-text tables ask for themselves.
PRAGMAS = frozenset(
    {
        "table_info",
        "table_xinfo",
        "table_list",
        "index_list",
        "index_info",
        "index_xinfo",
        "foreign_key_list",
        "data_version",
    }
)
# Read a property of the file. A policy has no use for them, and a benchmark's script lets an answer ask.
OF_THE_FILE = frozenset(
    {
        "application_id",
        "collation_list",
        "compile_options",
        "encoding",
        "foreign_key_check",
        "freelist_count",
        "function_list",
        "integrity_check",
        "page_count",
        "page_size",
        "quick_check",
        "schema_version",
        "user_version",
    }
)
# load_extension runs code, fts3_tokenizer takes a pointer, rtree* read hand-made blobs, sqlite_log writes to the host's
# log; the others are in SQLite's shell or common extensions. A new SQLite with more of them needs them here.
FUNCTIONS = frozenset(
    {
        "load_extension",
        "fts3_tokenizer",
        "rtreecheck",
        "rtreedepth",
        "rtreenode",
        "sqlite_log",
        "readfile",
        "writefile",
        "edit",
        "fsdir",
        "zipfile",
        "eval",
    }
)
# The table-valued forms of PRAGMAs on one table or index, which see no more than the statements do.
SCHEMA_FUNCTIONS = frozenset(
    f"pragma_{name}"
    for name in ("table_info", "table_xinfo", "index_list", "index_info", "index_xinfo", "foreign_key_list")
)
# Table-valued functions that see only their arguments, and the schema table under its internal names.
TABLES = SCHEMA_FUNCTIONS | {"json_each", "json_tree", "sqlite_master", "sqlite_schema", "sqlite_temp_master"}

DENIED = "\0"  # no table has this name

READ, SELECT = sqlite3.SQLITE_READ, sqlite3.SQLITE_SELECT
FUNCTION, RECURSIVE, PRAGMA = sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE, sqlite3.SQLITE_PRAGMA

Callback = Callable[[int, str | None, str | None, str | None, str | None], int]


def authorizer(
    names: Iterable[str],
    modules: Iterable[str],
    reads: set[str],
    functions: set[str],
    may_format: Callable[[], bool] = lambda: True,
    may_ask_file: Callable[[], bool] = lambda: False,
) -> Callback:
    """The callback for ``Connection.set_authorizer``.

    ``names`` are all tables and views of the file, ``modules`` what this SQLite can make virtual tables from.
    Every read adds the table's name to ``reads``; where no column is read (``count(*)``) it is the name as the
    statement spells it, which may be a common table expression's. A refusal adds DENIED. Every call adds the
    function's name, folded, to ``functions``. ``may_format`` is asked at every call of ``printf`` and ``format``,
    ``may_ask_file`` at a PRAGMA of OF_THE_FILE.
    """
    known = TABLES | set(names)
    folded = {fold_name(name) for name in known}
    outside = set(modules) - TABLES  # sqlite_stmt, dbstat …: some can be read without being in the file

    def readable(name: str, column: str) -> bool:
        name = fold_name(name)
        if name in folded:
            return True
        # With a column it is a table outside the file; without, it may be a common table expression.
        return not column and name not in outside and not name.startswith(("sqlite_", "pragma_"))

    def allowed(action: int, first: str, second: str) -> bool:
        if action == READ:
            reads.add(first)
            return readable(first, second)
        if action == FUNCTION:
            name = second.lower()
            functions.add(name)
            return name not in FUNCTIONS and (name not in FORMATS or may_format())
        if action == PRAGMA:
            name = first.lower()
            return name in PRAGMAS or (name in OF_THE_FILE and not second and may_ask_file())
        return action in (SELECT, RECURSIVE)

    def ask(action: int, first: str | None, second: str | None, database: str | None, source: str | None) -> int:
        if action == READ and first is not None and first in known:  # nearly all of them, one a column
            reads.add(first)
            return sqlite3.SQLITE_OK
        if allowed(action, first or "", second or ""):
            return sqlite3.SQLITE_OK
        reads.add(DENIED)
        return sqlite3.SQLITE_DENY

    return ask
