"""Modules as text: which of the project a module needs, in which order, and their texts made fit for one file."""

import ast
import io
import re
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

PROJECT = "sqale_grpo"
Import = tuple[str, str, str]  # module, name or "", alias or ""


@dataclass
class Module:
    """One module's source. ``needs``: the project's modules that it imports at its own import; ``late``: in functions;
    ``imports``: its other imports.
    """

    name: str
    text: str
    needs: list[str] = field(default_factory=list)
    late: list[str] = field(default_factory=list)
    imports: list[Import] = field(default_factory=list)

    def __post_init__(self) -> None:
        for node in ast.parse(self.text).body:
            if isinstance(node, ast.ImportFrom) and is_project(node.module or ""):
                self.needs.append(node.module or "")
            elif isinstance(node, ast.ImportFrom):
                self.imports += [(node.module or "", alias.name, alias.asname or "") for alias in node.names]
            elif isinstance(node, ast.Import):
                self.imports += [(alias.name, "", alias.asname or "") for alias in node.names]
            else:
                self.late += [inner.module or "" for inner in project_imports(node)]

    @property
    def path(self) -> Path:
        """Its file, from the root of the project."""
        return module_path(self.name)

    def defined(self) -> set[str]:
        """Names that the module's own statements bind."""
        found: set[str] = set()
        for node in ast.parse(self.text).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                found.add(node.name)
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                found |= {part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)}
        return found - {"__all__"}

    def third_party(self) -> list[Import]:
        """Its imports that are not the standard library's."""
        return [entry for entry in self.imports if entry[0].partition(".")[0] not in sys.stdlib_module_names]


def module_path(name: str) -> Path:
    """The file of one of the project's modules, from the root of the project."""
    return Path(*name.split(".")[1:]).with_suffix(".py")


def is_project(name: str) -> bool:
    """Whether a dotted name is one of the project's modules."""
    return name.partition(".")[0] == PROJECT


def project_imports(tree: ast.AST) -> Iterator[ast.ImportFrom]:
    """The imports of the project's modules in a piece of a program."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and is_project(node.module or ""):
            yield node


def read_modules(root: Path, entry: str, known: Iterable[str] = ()) -> dict[str, Module]:
    """``entry`` and all that it needs at its import but is not ``known``, each after what it needs itself."""
    found: dict[str, Module] = {}

    def visit(name: str) -> None:
        if name in found or name in known:
            return
        module = Module(name, (root / module_path(name)).read_text(encoding="utf-8"))
        for needed in module.needs:
            visit(needed)
        found[name] = module

    visit(entry)
    return found


def unique_names(modules: Iterable[Module]) -> dict[tuple[str, str], str]:
    """New names, by (module, name), for what two modules define, or one defines and another imports from elsewhere.

    The last definition keeps its name.
    """
    definers: dict[str, list[str]] = defaultdict(list)
    imported: dict[str, str] = {}
    for module in modules:
        for name in module.defined():
            definers[name].append(module.name)
        imported |= {alias or name or place.partition(".")[0]: module.name for place, name, alias in module.imports}
    renamed = {}
    for name, places in definers.items():
        for place in places if imported.get(name, places[0]) not in places else places[:-1]:
            part = place.rpartition(".")[2]
            bare = name.lstrip("_")
            new = f"{part.upper()}_{name}" if name.isupper() else f"{name[: len(name) - len(bare)]}{part}_{bare}"
            if new in definers:
                raise ValueError(f"{place}.{name} cannot become {new}: that name is taken too")
            renamed[place, name] = new
    return renamed


def with_names(module: Module, renamed: Mapping[tuple[str, str], str]) -> str:
    """The module's text under the new names of its own definitions and of those that it imports."""
    names = {name: new for (place, name), new in renamed.items() if place == module.name}
    for node in project_imports(ast.parse(module.text)):
        for alias in node.names:
            if alias.asname:
                raise ValueError(f"{module.name} imports {alias.name} as {alias.asname}: import it under its own name")
            if (node.module or "", alias.name) in renamed:
                names[alias.name] = renamed[node.module or "", alias.name]
    if not names:
        return module.text
    text = _substituted(module.text, names)
    if ast.dump(_Renamed(names).visit(ast.parse(module.text))) != ast.dump(ast.parse(text)):
        raise ValueError(
            f"{module.name} uses one of {', '.join(sorted(names))} for something else too (a local variable, an "
            "argument, a text); another module of the single file defines that name: give it another one here"
        )
    return text


def _substituted(text: str, names: Mapping[str, str]) -> str:
    """Every such word of the program, in f-strings too, unless an attribute's name."""
    word = re.compile(rf"(?<![\w.])({'|'.join(map(re.escape, names))})(?!\w)")
    lines = text.splitlines(keepends=True)
    pieces, at = [], (1, 0)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        pieces.append(_between(lines, at, token.start))
        source = _between(lines, token.start, token.end)
        formatted = token.type == tokenize.STRING and "f" in source.partition(source[-1])[0].lower()
        attribute = bool(pieces) and "".join(pieces[-2:]).rstrip().endswith(".")
        change = (token.type == tokenize.NAME and not attribute) or formatted
        pieces.append(word.sub(lambda match: names[match[1]], source) if change else source)
        at = token.end
    return "".join(pieces)


def _between(lines: list[str], start: tuple[int, int], end: tuple[int, int]) -> str:
    (first, left), (last, right) = start, end
    if first == last:
        return lines[first - 1][left:right] if first <= len(lines) else ""
    return (
        lines[first - 1][left:]
        + "".join(lines[first : last - 1])
        + (lines[last - 1][:right] if last <= len(lines) else "")
    )


class _Renamed(ast.NodeTransformer):
    """The same renaming on the syntax tree: what the text must come out as."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        node.id = self.names.get(node.id, node.id)
        return node

    def visit_Module(self, node: ast.Module) -> ast.Module:
        for part in node.body:
            if isinstance(part, ast.FunctionDef | ast.ClassDef):
                part.name = self.names.get(part.name, part.name)
        self.generic_visit(node)
        return node

    def visit_Global(self, node: ast.Global) -> ast.Global:
        node.names = [self.names.get(name, name) for name in node.names]
        return node

    def visit_alias(self, node: ast.alias) -> ast.alias:
        node.name = self.names.get(node.name, node.name)
        return node


def without_lines(text: str, nodes: Iterable[ast.stmt]) -> str:
    """The text without the lines of some statements."""
    gone = {number for node in nodes for number in range(first_line(node), (node.end_lineno or 0) + 1)}
    return "".join(line for number, line in enumerate(text.splitlines(keepends=True), 1) if number not in gone)


def first_line(node: ast.stmt) -> int:
    """A statement's first line, its decorators included."""
    decorators = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


def with_replaced(text: str, name: str, replacement: str) -> str:
    """The text with the definition of ``name`` exchanged. Raises ValueError where there is none."""
    lines = text.splitlines(keepends=True)
    for node in ast.parse(text).body:
        target = node.targets[0] if isinstance(node, ast.Assign) else node
        if name in (getattr(target, "id", None), getattr(target, "name", None)):
            return "".join([*lines[: first_line(node) - 1], replacement, *lines[node.end_lineno or 0 :]])
    raise ValueError(f"there is no definition of {name} to replace")


def annotation_only(module: Module) -> bool:
    """Whether the names that come from third-party packages stand in annotations alone."""
    names = {alias or name or place.partition(".")[0] for place, name, alias in module.third_party()}
    tree = ast.parse(module.text)
    for node in ast.walk(tree):
        if isinstance(node, ast.arg | ast.AnnAssign):
            node.annotation = ast.Constant(None)
        elif isinstance(node, ast.FunctionDef):
            node.returns = None
    return not names & {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
