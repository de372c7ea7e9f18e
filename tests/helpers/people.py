"""A small database of people and their pets, and the error that a statement gets there."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from sqale_grpo.env.sandbox import Sandbox, SqlError

SCHEMA = """
CREATE TABLE Person(id INTEGER PRIMARY KEY, name TEXT, "größe" REAL);
CREATE TABLE pet(owner INTEGER REFERENCES Person(id), kind TEXT);
CREATE VIEW owners AS SELECT name, kind FROM Person JOIN pet ON owner = id;
CREATE INDEX pets ON pet(kind);
INSERT INTO Person VALUES (1, 'Ann', 1.5), (2, 'Bob', NULL), (3, NULL, 9e999);
INSERT INTO pet VALUES (1, 'cat'), (1, 'dog'), (2, 'cat');
"""


def build(path: Path, script: str) -> Path:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)
    return path


def failure(sandbox: Sandbox, sql: str) -> SqlError:
    with pytest.raises(SqlError) as caught:
        sandbox.execute(sql)
    return caught.value
