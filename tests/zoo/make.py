"""Make the zoo: odd but good SQLite files, and for each a query with the rows that are right.

    python -m tests.zoo.make FOLDER

writes the files, and ``answers.jsonl`` with a line per file: ``file``, ``about``, ``query``, ``rows`` (blobs as
``{"blob": hex}``, text that is not UTF-8 as ``{"text": hex}``), ``columns`` of the ``table`` that the query reads. An
evaluator that opens each file by its name and runs the query should get these rows, and leave the files as they are. A
file with ``may_refuse`` holds a change that a program did not bring to its end: it can be read right only by writing,
so that to refuse it is right, too. ``python -m tests.zoo.table`` says what this project and plain ``sqlite3`` make of
each.
"""

import json
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

Rows = list[tuple[Any, ...]]


@dataclass(frozen=True)
class Animal:
    """One file of the zoo. ``columns``: of ``table``; ``may_refuse``: reading it right takes writing."""

    file: str
    about: str
    query: str
    rows: Rows = field(default_factory=list)
    table: str = "t"
    columns: tuple[str, ...] = ()
    may_refuse: bool = False


Maker = Callable[[Path], Iterator[Animal]]
MAKERS: list[Maker] = []


def maker(make: Maker) -> Maker:
    """Enter a function that writes files into a folder and says what is right about them."""
    MAKERS.append(make)
    return make


def make_zoo(folder: Path) -> list[Animal]:
    """Write all files into ``folder``, which should be empty."""
    folder.mkdir(parents=True, exist_ok=True)
    return [animal for make in MAKERS for animal in make(folder)]


def write(path: Path, script: str, values: Sequence[tuple[str, tuple]] = ()) -> Path:
    """A database made by a script, then by statements with values."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript(script)
        for statement, bound in values:
            connection.execute(statement, bound)
    return path


@maker
def encodings(folder: Path) -> Iterator[Animal]:
    for name in ("UTF-16le", "UTF-16be"):
        file = f"{name.lower()}.sqlite"
        write(
            folder / file,
            f"PRAGMA encoding='{name}'; CREATE TABLE straße(id INTEGER PRIMARY KEY, größe TEXT);"
            "CREATE TABLE t(a REFERENCES straße(id)); INSERT INTO straße VALUES(1,'Ä€😀'); INSERT INTO t VALUES(1)",
        )
        query = "SELECT größe FROM t JOIN straße ON a = id"
        yield Animal(file, f"text stored as {name}", query, [("Ä€😀",)], "straße", ("id", "größe"))
    write(folder / "latin1.sqlite", "CREATE TABLE t(a); INSERT INTO t VALUES(CAST(x'66fc72' AS TEXT))")
    rows: Rows = [(b"f\xfcr".decode("utf-8", "surrogateescape"), "66FC72")]
    yield Animal("latin1.sqlite", "text that is not UTF-8", "SELECT a, hex(a) FROM t", rows, "t", ("a",))


@maker
def links(folder: Path) -> Iterator[Animal]:
    live = folder / "elsewhere" / "wal.sqlite"
    live.parent.mkdir()
    with closing(sqlite3.connect(live, isolation_level=None)) as writer:
        writer.executescript(
            "PRAGMA journal_mode=WAL; CREATE TABLE t(a); INSERT INTO t VALUES('old');"
            "PRAGMA wal_checkpoint(TRUNCATE); UPDATE t SET a='new'"
        )
        for side in ("", "-wal", "-shm"):
            shutil.copyfile(f"{live}{side}", f"{folder}/open_wal.sqlite{side}")
        for side in ("", "-wal"):
            shutil.copyfile(f"{live}{side}", f"{folder}/left_wal.sqlite{side}")
    (folder / "link_to_wal.sqlite").symlink_to("open_wal.sqlite")
    for file, about in (("open_wal", "last commit in the log"), ("link_to_wal", "symbolic link to such a file")):
        yield Animal(f"{file}.sqlite", about, "SELECT a FROM t", [("new",)], "t", ("a",))
    about = "log that a program left behind, last commit in it"
    yield Animal("left_wal.sqlite", about, "SELECT a FROM t", [("new",)], "t", ("a",), may_refuse=True)


@maker
def journals(folder: Path) -> Iterator[Animal]:
    write(folder / "persist.sqlite", "PRAGMA journal_mode=PERSIST; CREATE TABLE t(a); INSERT INTO t VALUES(1)")
    yield Animal("persist.sqlite", "spent journal that is kept", "SELECT a FROM t", [(1,)], "t", ("a",))
    write(folder / "empty_wal.sqlite", "CREATE TABLE t(a); INSERT INTO t VALUES(1)")
    (folder / "empty_wal.sqlite-wal").touch()
    yield Animal("empty_wal.sqlite", "log of 0 bytes", "SELECT a FROM t", [(1,)], "t", ("a",))
    write(folder / "closed_wal.sqlite", "PRAGMA journal_mode=WAL; CREATE TABLE t(a); INSERT INTO t VALUES(1)")
    yield Animal("closed_wal.sqlite", "write-ahead mode, nobody has it open", "SELECT a FROM t", [(1,)], "t", ("a",))
    numbers = "WITH c(x) AS (VALUES(1) UNION ALL SELECT x+1 FROM c WHERE x<2000)"
    rows = f"{numbers} INSERT INTO t SELECT x, hex(zeroblob(90)) FROM c"
    source = write(folder / "elsewhere" / "hot.sqlite", f"CREATE TABLE t(a,b); {rows}")
    with closing(sqlite3.connect(source, isolation_level=None)) as writer:
        writer.executescript("PRAGMA cache_size=5; BEGIN; UPDATE t SET a=-a")
        for side in ("", "-journal"):
            shutil.copyfile(f"{source}{side}", f"{folder}/hot.sqlite{side}")
        writer.execute("ROLLBACK")
    (folder / "link_to_hot.sqlite").symlink_to("hot.sqlite")
    for file, about in (("hot", "change that was never completed"), ("link_to_hot", "symbolic link to such a file")):
        query = "SELECT count(*) FROM t WHERE a < 0"
        yield Animal(f"{file}.sqlite", about, query, [(0,)], "t", ("a", "b"), may_refuse=True)


@maker
def sizes(folder: Path) -> Iterator[Animal]:
    write(
        folder / "large_cell.sqlite",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, photo); INSERT INTO t VALUES(1,zeroblob(3000000))",
    )
    yield Animal("large_cell.sqlite", "a cell of 3 MB", "SELECT id FROM t", [(1,)], "t", ("id", "photo"))
    columns = tuple(f"c{number}" for number in range(2000))
    write(folder / "wide.sqlite", f"CREATE TABLE t({', '.join(columns)}); INSERT INTO t(c1999) VALUES(7)")
    yield Animal("wide.sqlite", "2,000 columns", "SELECT c1999 FROM t", [(7,)], "t", columns)
    tables = "".join(f"CREATE TABLE customer_order_{number}(id);" for number in range(3000))
    write(folder / "many_tables.sqlite", f"BEGIN; {tables} CREATE TABLE t(a); INSERT INTO t VALUES(1); COMMIT")
    yield Animal("many_tables.sqlite", "3,001 tables", "SELECT a FROM t", [(1,)], "t", ("a",))
    for size in (512, 65536):
        write(folder / f"page_{size}.sqlite", f"PRAGMA page_size={size}; CREATE TABLE t(a); INSERT INTO t VALUES(1)")
        yield Animal(f"page_{size}.sqlite", f"pages of {size} bytes", "SELECT a FROM t", [(1,)], "t", ("a",))


@maker
def names(folder: Path) -> Iterator[Animal]:
    bad = "CAST(x'" + b'CREATE VIRTUAL TABLE w USING "\xff"(a)'.hex() + "' AS TEXT)"
    write(
        folder / "module_not_utf8.sqlite",
        "CREATE TABLE t(a); INSERT INTO t VALUES(1); PRAGMA writable_schema=ON;"
        f"INSERT INTO sqlite_master VALUES('table','w','w',0,{bad})",
    )
    yield Animal(
        "module_not_utf8.sqlite",
        "virtual table whose module's name is not UTF-8",
        "SELECT a FROM t",
        [(1,)],
        "t",
        ("a",),
    )
    write(folder / "nameless.sqlite", """CREATE TABLE ""(a); INSERT INTO "" VALUES(1)""")
    yield Animal("nameless.sqlite", "a table whose name is empty", 'SELECT a FROM ""', [(1,)], "", ("a",))
    write(folder / "a?b%20#c.sqlite", "CREATE TABLE t(a); INSERT INTO t VALUES(1)")
    yield Animal("a?b%20#c.sqlite", "file name with signs of a URI", "SELECT a FROM t", [(1,)], "t", ("a",))
    write(
        folder / "odd_names.sqlite",
        """CREATE TABLE "odd ""name; --"("a b", [select], `c``d`); INSERT INTO "odd ""name; --" VALUES(1,2,3)""",
    )
    query = 'SELECT "c`d" FROM "odd ""name; --"'
    yield Animal(
        "odd_names.sqlite", "names with quotes and signs", query, [(3,)], 'odd "name; --', ("a b", "select", "c`d")
    )


@maker
def extensions(folder: Path) -> Iterator[Animal]:
    with closing(sqlite3.connect(folder / "collation.sqlite", isolation_level=None)) as connection:
        connection.create_collation("LOCALIZED", lambda a, b: (a > b) - (a < b))
        connection.executescript(
            "CREATE TABLE t(a TEXT COLLATE LOCALIZED, b); CREATE INDEX i ON t(a); INSERT INTO t VALUES('x',1),('x',2)"
        )
    yield Animal("collation.sqlite", "a collation of another program", "SELECT sum(b) FROM t", [(3,)], "t", ("a", "b"))
    write(
        folder / "missing_module.sqlite",
        "CREATE TABLE t(a); INSERT INTO t VALUES(1); PRAGMA writable_schema=ON;"
        "INSERT INTO sqlite_master VALUES('table','s','s',0,'CREATE VIRTUAL TABLE s USING VirtualSpatialIndex()')",
    )
    for name, module, damage in (
        ("rtree", "rtree(id, low, high)", "DELETE FROM i_node; INSERT INTO i_node VALUES(1, x'0000')"),
        ("fulltext", "fts5(body)", "UPDATE i_config SET v = 99 WHERE k = 'version'"),
    ):
        write(
            folder / f"damaged_{name}.sqlite",
            f"CREATE TABLE t(a); INSERT INTO t VALUES(1); CREATE VIRTUAL TABLE i USING {module}; {damage}",
        )
        about = f"damaged {name} index beside a good table"
        yield Animal(f"damaged_{name}.sqlite", about, "SELECT a FROM t", [(1,)], "t", ("a",))
    yield Animal("missing_module.sqlite", "virtual table of an extension", "SELECT a FROM t", [(1,)], "t", ("a",))
    write(
        folder / "fts5.sqlite",
        "CREATE TABLE secret_posts(body); INSERT INTO secret_posts VALUES('quick fox');"
        "CREATE VIRTUAL TABLE t USING fts5(body, content='secret_posts'); INSERT INTO t(t) VALUES('rebuild')",
    )
    query = "SELECT body FROM t WHERE t MATCH 'fox'"
    yield Animal("fts5.sqlite", "full-text index over another table", query, [("quick fox",)], "t", ("body",))


@maker
def kinds(folder: Path) -> Iterator[Animal]:
    write(
        folder / "kinds.sqlite",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a INT, b INT AS (a * 2), c INT AS (a + 1) STORED) STRICT;"
        "INSERT INTO t(a) VALUES(3); CREATE TABLE u(k PRIMARY KEY, v) WITHOUT ROWID;"
        "INSERT INTO u VALUES('x', x'00ff')",
    )
    query = "SELECT b, c, v FROM t, u"
    yield Animal(
        "kinds.sqlite", "strict, generated, without rowid", query, [(6, 4, b"\x00\xff")], "t", ("id", "a", "b", "c")
    )
    views = "".join(f"CREATE VIEW v{n} AS SELECT x.a FROM v{n - 1} x, v{n - 1} y;" for n in range(1, 60))
    write(
        folder / "views.sqlite",
        f"CREATE TABLE t(a); INSERT INTO t VALUES(1); CREATE VIEW v0 AS SELECT a FROM t; {views}",
    )
    yield Animal("views.sqlite", "views that double at every step", "SELECT a FROM v1", [(1,)], "t", ("a",))


def as_json(animal: Animal) -> str:
    """A line of ``answers.jsonl``."""
    rows = [[_plain(value) for value in row] for row in animal.rows]
    return json.dumps({**asdict(animal), "rows": rows}, ensure_ascii=False)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"blob": value.hex()}
    if isinstance(value, str) and not value.isascii() and value.encode("utf-8", "replace").decode() != value:
        return {"text": value.encode("utf-8", "surrogateescape").hex()}
    return value


def main(arguments: Sequence[str]) -> int:
    """Make the zoo in a folder."""
    folder = Path(*arguments[:1])
    animals = make_zoo(folder)
    (folder / "answers.jsonl").write_text("".join(f"{as_json(animal)}\n" for animal in animals), encoding="utf-8")
    print(f"{len(animals)} files and answers.jsonl in {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
