"""Which private names of a library our files use: what the tables of ``seams.py`` are held against."""

import ast
import inspect
import re
from collections.abc import Iterable
from pathlib import Path


def names_used(files: Iterable[Path]) -> set[str]:
    """Every name with one leading underscore that the files define, import, or read from an object."""
    found: set[str] = set()
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute):
                found.add(node.attr)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found.add(node.name)
            elif isinstance(node, ast.ImportFrom):
                found.update(alias.name for alias in node.names)
    return {name for name in found if is_private(name)}


def files_that_import(library: str, *folders: Path) -> list[Path]:
    """The folders' files that import the library or a part of it."""
    statement = re.compile(rf"^\s*(?:import|from) {library}\b", re.MULTILINE)
    files = [file for folder in folders for file in sorted(folder.glob("*.py"))]
    return [file for file in files if statement.search(file.read_text(encoding="utf-8"))]


def names_of(kind: type) -> set[str]:
    """The private names of a class: its methods', inherited ones too, and those of attributes that they set."""
    names = set(dir(kind))
    for base in kind.__mro__[:-1]:
        names.update(re.findall(r"self\.(\w+)\s*(?::[^=\n]+)?=[^=]", source_of(base)))
    return {name for name in names if is_private(name)}


def source_of(kind: type) -> str:
    """The class's source; nothing for one that is compiled."""
    try:
        return inspect.getsource(kind)
    except (OSError, TypeError):
        return ""


def is_private(name: str) -> bool:
    """One leading underscore: two are Python's own."""
    return name.startswith("_") and not name.startswith("__")


def parameters(function: object) -> tuple[str, ...]:
    """The names of a function's parameters, without ``self``."""
    return tuple(name for name in inspect.signature(function).parameters if name != "self")  # type: ignore[arg-type]
