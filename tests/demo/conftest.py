"""Fixtures of this folder: those of all tests that roll out or train."""

from tests.helpers.training import (  # noqa: F401
    one_thread,
    pool,
    quick,
    random_policy,
    shop_database,
    starter,
    tokenizer,
    work,
)
