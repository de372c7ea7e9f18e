"""The private names of ``sqale``: the installed version has every one of the table, and we touch no other."""

import pytest
from sqale import deserialize

from sqale_grpo.corpus.seams import SQALE
from tests.conftest import ROOT
from tests.helpers.private_names import files_that_import, names_used, parameters


@pytest.mark.parametrize("name", SQALE)
def test_a_function_is_there_with_its_parameters(name):
    assert hasattr(deserialize, name), f"the installed sqale has no {name}: mend corpus/sqale.py and corpus/seams.py"
    assert parameters(getattr(deserialize, name)) == SQALE[name][0], f"{name} takes other arguments"


def test_the_table_names_every_private_name_that_we_touch():
    assert names_used(files_that_import("sqale", ROOT / "corpus")) & set(dir(deserialize)) == set(SQALE)
