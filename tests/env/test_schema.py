"""Schema graph beyond the case files: reading files, views, odd relations, real schemas."""

import os
import random
import sqlite3
import threading
from contextlib import closing

import networkx
import pytest

from sqale_grpo.env.schema import ForeignKey, SchemaGraph
from sqale_grpo.env.text import fold_name
from tests.helpers.databases import schema_of


def graph_of(ddl: str) -> SchemaGraph:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(ddl)
        return schema_of(connection)


def test_shop(shop_file):
    graph = SchemaGraph.from_file(shop_file)
    assert graph.tables == (
        "customers", "order items", "Straße", "returns", "select", "a, b", "texts", "empty",
    )  # fmt: skip
    assert graph.views == ("spenders",)
    assert graph.foreign_keys == (
        ForeignKey("order items", ("customer",), "customers", ("id",)),
        ForeignKey("returns", ("o", "l"), "order items", ("order no", "line")),
        ForeignKey("select", ("parent",), "select", ("id",)),
    )
    assert graph.columns("ORDER ITEMS") == ("order no", "line", "group", "price", "total", "customer")
    assert graph.columns("spenders") == ("name", "price")
    assert graph.columns("texts") == ("body",)
    assert graph.ddl("Customers").startswith("CREATE TABLE customers(id INTEGER PRIMARY KEY")
    assert graph.ddl("spenders").startswith("CREATE VIEW spenders")


def test_names_fold_as_in_sqlite(shop_file):
    graph = SchemaGraph.from_file(shop_file)
    assert graph.find("STRAßE") == graph.find("straße") == "Straße"
    assert graph.find("STRASSE") is None
    assert graph.find("spenders") is None and graph.find_view("SPENDERS") == "spenders"
    assert fold_name("ÄbC") == "Äbc"


@pytest.mark.parametrize("ask", [SchemaGraph.columns, SchemaGraph.ddl, SchemaGraph.neighbors])
def test_unknown_name_raises(shop_file, ask):
    with pytest.raises(KeyError, match="no table or view named 'nope'"):
        ask(SchemaGraph.from_file(shop_file), "nope")


def test_a_broken_view_and_a_trigger_of_a_tables_name_do_no_harm():
    graph = graph_of(
        "CREATE TABLE a(x); CREATE VIEW v AS SELECT * FROM gone; CREATE VIEW w AS SELECT nope FROM a;"
        "CREATE TRIGGER a AFTER INSERT ON a BEGIN SELECT 1; END; CREATE INDEX i ON a(x);"
    )
    assert (graph.tables, graph.views) == (("a",), ("v", "w"))
    assert graph.columns("v") == () and graph.ddl("a") == "CREATE TABLE a(x)"


def test_names_that_are_not_utf8():
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE t(x)")
        connection.execute("PRAGMA writable_schema=ON")
        connection.execute(
            "UPDATE sqlite_master SET name = CAST(x'74fc' AS TEXT), tbl_name = CAST(x'74fc' AS TEXT), sql = CAST(x'"
            + b"CREATE TABLE t\xfc(x)".hex()
            + "' AS TEXT)"
        )
        data = connection.serialize()
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(data)
        graph = schema_of(connection)
        assert graph.tables == ("t\udcfc",) and graph.columns("t\udcfc") == ("x",)
        # The connection is left as it was.
        assert connection.text_factory is str


def test_file_errors(tmp_path):
    with pytest.raises(FileNotFoundError, match="no database file at .*gone"):
        SchemaGraph.from_file(tmp_path / "gone.sqlite")
    (tmp_path / "text.sqlite").write_text("no database " * 100)
    with pytest.raises(ValueError, match=r"text\.sqlite cannot be read as a SQLite database"):
        SchemaGraph.from_file(tmp_path / "text.sqlite")


def test_a_changed_file_is_read_again(tmp_path):
    file = tmp_path / "odd name #%?.sqlite"
    for stamp, table in enumerate(["first", "second"]):
        file.unlink(missing_ok=True)
        with closing(sqlite3.connect(file)) as connection:
            connection.execute(f"CREATE TABLE {table}(x)")
        os.utime(file, ns=(stamp, stamp))
        assert SchemaGraph.from_file(file).tables == (table,)
        assert SchemaGraph.from_file(str(file)) is SchemaGraph.from_file(file)
    assert os.listdir(tmp_path) == [file.name]


def test_join_paths_are_the_first_shortest_ones():
    """Against networkx on random graphs."""
    chance = random.Random(7)
    for _ in range(60):
        names = [f"t{i}" for i in range(9)]
        pairs = [tuple(chance.sample(names, 2)) for _ in range(chance.randrange(12))]
        ddl = [
            f"CREATE TABLE {name}(id INTEGER PRIMARY KEY"
            + "".join(f", c{i} REFERENCES {b}" for i, (a, b) in enumerate(pairs) if a == name)
            + ")"
            for name in names
        ]
        graph, model = graph_of(";".join(ddl)), networkx.Graph(pairs)
        model.add_nodes_from(names)
        a, b = chance.sample(names, 2)
        expected = min(networkx.all_shortest_paths(model, a, b)) if networkx.has_path(model, a, b) else None
        assert graph.join_path(a, b) == expected
        assert set(graph.neighbors(a)) == set(model[a])


def test_threads_share_a_graph(shop_file):
    graph = SchemaGraph.from_file(shop_file)
    found: list[object] = []
    ask = lambda: found.extend(graph.join_path("returns", "customers") for _ in range(200))  # noqa: E731
    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [["returns", "order items", "customers"]] * 1600


def test_real_schemas(shared_data):
    """Tables and keys of real databases, as their catalogs count them."""
    for file in sorted(shared_data.glob("databases/*/*.sqlite"))[::10]:
        graph = SchemaGraph.from_file(file)
        with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
            rows = connection.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
            )
            assert set(graph.tables) == {name for (name,) in rows}
            for key in graph.foreign_keys:
                condition = " AND ".join(f'c."{a}" = p."{b}"' for a, b in key.pairs())
                connection.execute(f'SELECT 1 FROM "{key.child}" c JOIN "{key.parent}" p ON {condition} LIMIT 1')
