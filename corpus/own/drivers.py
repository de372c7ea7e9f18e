"""The drivers of other databases: optional packages, asked for when a source needs one."""

from importlib import import_module
from types import ModuleType

from sqale_grpo.corpus.question import CorpusError

PACKAGES = {"duckdb": "duckdb", "psycopg": "psycopg[binary]", "pymysql": "pymysql"}


def driver(module: str, source: str) -> ModuleType:
    """The driver. Raises CorpusError where it is not installed."""
    try:
        return import_module(module)
    except ImportError as error:
        raise CorpusError(
            f"{source} needs the package {PACKAGES[module]}, which is not installed ({error}); run: "
            f"pip install '{PACKAGES[module]}', or 'sqale-grpo[own]' for all of these"
        ) from None
