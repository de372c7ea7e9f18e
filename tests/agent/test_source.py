"""Joining modules: names that two of them define, and what cannot be joined is refused."""

import ast

import pytest

from sqale_grpo.agent.source import Module, annotation_only, unique_names, with_names, with_replaced, without_lines

FIRST = "LIMIT = 1\n\ndef show(n):\n    return f'{LIMIT} {n.LIMIT}'\n"


def test_the_last_definition_keeps_its_name_and_users_follow():
    first, second = Module("sqale_grpo.env.a", FIRST), Module("sqale_grpo.env.b", "LIMIT = 2\n")
    user = Module("sqale_grpo.env.c", "from sqale_grpo.env.a import LIMIT, show\nprint(LIMIT, show, 'LIMIT')\n")
    renamed = unique_names([first, second, user])
    assert renamed == {("sqale_grpo.env.a", "LIMIT"): "A_LIMIT"}
    assert with_names(first, renamed) == "A_LIMIT = 1\n\ndef show(n):\n    return f'{A_LIMIT} {n.LIMIT}'\n"
    assert with_names(user, renamed) == "from sqale_grpo.env.a import A_LIMIT, show\nprint(A_LIMIT, show, 'LIMIT')\n"
    assert with_names(second, renamed) == second.text


def test_a_name_that_another_module_imports_from_elsewhere_is_changed():
    modules = [
        Module("sqale_grpo.env.a", "def field():\n    pass\n"),
        Module("sqale_grpo.env.b", "from dataclasses import field\n"),
    ]
    assert unique_names(modules) == {("sqale_grpo.env.a", "field"): "a_field"}


@pytest.mark.parametrize("use", ["def f(LIMIT):\n    return LIMIT\n", "f(LIMIT=3)\n", "text = f'LIMIT {1}'\n"])
def test_a_name_with_two_meanings_in_one_module_is_refused(use):
    module = Module("sqale_grpo.env.a", f"LIMIT = 1\n{use}")
    with pytest.raises(ValueError, match=r"sqale_grpo\.env\.a uses one of LIMIT for something else too"):
        with_names(module, {("sqale_grpo.env.a", "LIMIT"): "A_LIMIT"})


def test_imports_under_another_name_are_refused():
    with pytest.raises(ValueError, match="import it under its own name"):
        with_names(Module("sqale_grpo.env.a", "from sqale_grpo.env.b import x as y\n"), {})


def test_a_definition_is_replaced_with_its_decorators_and_what_is_not_there_is_not():
    text = "# before\n@cache\ndef f():\n    return 1\n\nX = 2\n"
    assert with_replaced(text, "f", "def f(): ...\n") == "# before\ndef f(): ...\n\nX = 2\n"
    with pytest.raises(ValueError, match="no definition of g"):
        with_replaced(text, "g", "")


def test_lines_of_statements_go():
    text = "import a\nfrom b import (\n    c,\n)\nx = 1\n"
    assert without_lines(text, ast.parse(text).body[:2]) == "x = 1\n"


def test_third_party_names_may_stand_in_annotations_only():
    head = "from transformers import Tokenizer\n"
    assert annotation_only(
        Module("sqale_grpo.train.a", head + "def f(x: Tokenizer) -> Tokenizer:\n    y: Tokenizer = x\n")
    )
    assert not annotation_only(Module("sqale_grpo.train.a", head + "def f(x):\n    return Tokenizer(x)\n"))
