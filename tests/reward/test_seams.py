"""The private names of sqlglot: the installed version has every one of the table, and we touch no other."""

import pytest
from sqlglot.parsers.sqlite import SQLiteParser

from sqale_grpo.reward.seams import SQLGLOT
from tests.conftest import ROOT
from tests.helpers.private_names import files_that_import, names_used, parameters


@pytest.mark.parametrize("name", SQLGLOT)
def test_a_method_is_there_with_its_parameters(name):
    found = hasattr(SQLiteParser, name)
    assert found, f"the installed sqlglot has no {name}: mend reward/statement.py and reward/seams.py"
    assert parameters(getattr(SQLiteParser, name)) == SQLGLOT[name][0], f"{name} takes other arguments"


def test_the_table_names_every_private_name_that_we_touch():
    files = files_that_import("sqlglot", ROOT / "reward")
    assert names_used(files) & set(dir(SQLiteParser)) == set(SQLGLOT)
