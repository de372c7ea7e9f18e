"""``sqale_agent.py``: the environment and the agent as one readable file that runs alone.

The modules are found by following imports from ``agent.ask``. Each stands under a heading, docstring and
comments kept; imports of the project fall away, and a name that two modules define is changed in all but the last.
What needs torch or vLLM at its import is put into a function, so that it is imported with a model. What the worker
processes run is marked, and they load that part alone.
"""

import ast
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path

from sqale_grpo.agent.settings import Settings
from sqale_grpo.agent.source import (
    Import,
    Module,
    annotation_only,
    project_imports,
    read_modules,
    unique_names,
    with_names,
    with_replaced,
    without_lines,
)
from sqale_grpo.env.files import write_whole
from sqale_grpo.env.prompts import Prompts

ROOT = Path(__file__).resolve().parents[1]
ENTRY = "sqale_grpo.agent.ask"
WORKER = "sqale_grpo.env.worker"
NAME = "sqale_agent.py"
WIDTH = 116
LATE_IMPORTS = [("functools", "cache", ""), ("types", "SimpleNamespace", "")]

HEADER = '''\
#!/usr/bin/env python3
"""SQaLe agent: answers questions over SQLite databases, in the loop that the checkpoint was trained in.

    pip install vllm                 # or: pip install torch transformers, and --backend transformers
    python sqale_agent.py --model MODEL --db shop.sqlite --question "How many orders are late?" --trace

    # a server that holds the model (vLLM, llama.cpp, Ollama, hosted): nothing to install
    python sqale_agent.py --model NAME --backend openai --url http://127.0.0.1:8080/v1 --db shop.sqlite --question TEXT

    from sqale_agent import SQaLeAgent, vllm_generate
    agent = SQaLeAgent(*vllm_generate(MODEL))
    episode = agent.run("How many orders are late?", "shop.sqlite")
    print(episode["sql"], episode["rows"], episode["ended_by"])

Standard library only, unless a model is loaded here; Python's SQLite must be 3.37 or newer. The database is opened
read-only; the policy's SQL runs in worker processes that can read that file and nothing else, within limits of steps,
time, memory and size.

Made by `sqale-grpo agent build` from the modules that train and evaluate the policy: prompts, tools, turn budget,
parsing and the final answer's fallback are those of training. Change them there, not here.
"""

from __future__ import annotations

import os
import sys

if sys.version_info < (3, 11):
    raise ImportError(f"sqale_agent.py needs Python 3.11 or newer; this is {sys.version.split()[0]}")
if os.name != "posix":
    raise ImportError("sqale_agent.py needs Linux, macOS or WSL: it bounds a query's process with POSIX limits")
'''
# A prompt may hold these words, too, but stands before them: a worker looks for the last ones.
WORKER_BEGINS = (
    "# worker process begins: a process that runs queries loads from here to where it ends, and nothing else"
)
WORKER_ENDS = "# worker process ends"
BOOT = """\
# A worker loads its part of this file, not what needs time to import. The code knows where it lies; __file__ may be
# another program's, which runs this text.
FILE = os.path.abspath(sys._getframe().f_code.co_filename)
if not os.path.isfile(FILE):
    raise ImportError("sqale_agent.py must be imported or run as a file, not by exec: its worker processes load it")
BOOT = (
    "import sys; text = open(sys.argv[1], encoding='utf-8').read();"
    "begin, end = (text.rindex('\\\\n# worker process ' + mark) for mark in ('begins', 'ends'));"
    "lines = '\\\\n' * text.count('\\\\n', 0, begin);"
    "exec(compile(lines + text[begin:end], sys.argv[1], 'exec')); {main}()"
)
"""
BOOT_ARGUMENTS = '''\
def boot_arguments() -> list[str]:
    """Python's arguments that make a process a worker: a program, and where its part of this file lies."""
    return ["-c", BOOT, FILE]
'''
LOAD_OWN = """\
def _load_own() -> Prompts:
    return Prompts(system=SYSTEM_PROMPT, user=USER_TEMPLATE, **OTHER_PROMPTS)
"""


def write_agent(file: Path, prompts: Prompts, settings: Settings) -> None:
    """Write the single file, whole or not at all; it can be run as a program."""
    text = build_agent(prompts, settings)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, text, mode=0o777)


def build_agent(prompts: Prompts, settings: Settings) -> str:
    """The single file's text, with prompts and settings in it. Raises ValueError for sources that it cannot join."""
    worker = read_modules(ROOT, WORKER)
    modules = worker | read_modules(ROOT, ENTRY)
    late = {
        root: read_modules(ROOT, root, modules)
        for root in dict.fromkeys(name for module in modules.values() for name in module.late)
        if root not in modules
    }
    every = [*modules.values(), *{name: module for group in late.values() for name, module in group.items()}.values()]
    renamed = unique_names(every)
    replaced = replacements(settings, renamed.get((WORKER, "main"), "main"))
    written = {module.name: section(module, renamed, replaced.get(module.name, {})) for module in every}
    inside = [module for module in modules.values() if module.name in worker]
    outside = [module for module in modules.values() if module.name not in worker]
    for module in modules.values():
        if not annotation_only(module):
            raise ValueError(f"{module.name} needs {module.third_party()} at its import: import it where it is used")
    parts = [
        HEADER,
        prompt_texts(prompts),
        f"{WORKER_BEGINS}\n\n{imports(inside)}",
        *(written[module.name] for module in inside),
        f"{WORKER_ENDS}\n\n{imports(outside, LATE_IMPORTS)}",
        *(written[module.name] for module in outside),
        *(late_function(root, list(group.values()), written, outside) for root, group in late.items()),
        'if __name__ == "__main__":\n    sys.exit(run_program(main))',
    ]
    text = "\n\n\n".join(part.strip("\n") for part in parts) + "\n"
    compile(text, NAME, "exec")
    return text


def replacements(settings: Settings, worker_main: str) -> dict[str, dict[str, str]]:
    """Definitions that differ in the single file, by module and name."""
    fields = ", ".join(f"{name}={value!r}" for name, value in vars(settings).items())
    return {
        "sqale_grpo.env.process": {"BOOT": BOOT.replace("{main}", worker_main), "boot_arguments": BOOT_ARGUMENTS},
        "sqale_grpo.env.prompts": {"OWN_FILE": 'OWN_FILE = "the checkpoint\'s prompts.json"\n', "_load_own": LOAD_OWN},
        "sqale_grpo.agent.settings": {"SETTINGS": f"SETTINGS = Settings({fields})\n"},
    }


def section(module: Module, renamed: Mapping[tuple[str, str], str], replaced: Mapping[str, str]) -> str:
    """A module's text under its heading, fit for the single file."""
    text = with_names(module, renamed)
    for name, replacement in replaced.items():
        text = with_replaced(text, name, replacement)
    tree = ast.parse(text)
    lines = text.splitlines(keepends=True)
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            continue
        for inner in project_imports(node):
            indent = " " * inner.col_offset
            names = "".join(
                f"{indent}{alias.name} = {late_name(inner.module or '')}().{alias.name}\n" for alias in inner.names
            )
            lines[inner.lineno - 1 : inner.end_lineno] = [names, *[""] * ((inner.end_lineno or 0) - inner.lineno)]
    gone = [node for place, node in enumerate(tree.body) if place == 0 or is_left_out(node)]
    body = without_lines("".join(lines), gone).strip("\n")
    return f"{heading(module.path.as_posix(), ast.get_docstring(tree) or '')}\n\n{body}"


def is_left_out(node: ast.stmt) -> bool:
    """Imports, which stand elsewhere; ``__all__``; what runs a module as a program."""
    if isinstance(node, ast.Assign):
        return isinstance(node.targets[0], ast.Name) and node.targets[0].id == "__all__"
    if isinstance(node, ast.If):
        return "__name__" in {part.id for part in ast.walk(node.test) if isinstance(part, ast.Name)}
    return isinstance(node, ast.Import | ast.ImportFrom)


def heading(title: str, text: str) -> str:
    """A bar, a title, and a text as comments."""
    bar = "# " + "=" * (WIDTH - 2)
    lines = [f"# {line}".rstrip() for line in text.splitlines()]
    return "\n".join([bar, f"# {title}", "#", *lines, bar])


def imports(
    modules: Iterable[Module], more: Iterable[Import] = (), known: Iterable[Import] = (), inside: bool = False
) -> str:
    """The imports of some modules that are not ``known``, each once.

    Unless ``inside`` a function, those of third parties serve annotations alone.
    """
    standard = list(more)
    others: list[Import] = []
    for module in modules:
        foreign = module.third_party()
        standard += [entry for entry in module.imports if entry not in foreign and entry not in known]
        others += foreign
    if others and not inside:
        standard.append(("typing", "TYPE_CHECKING", ""))
        block = textwrap.indent(import_lines(others), "    ")
        return f"{import_lines(standard)}\n\nif TYPE_CHECKING:\n{block}"
    return "\n\n".join(import_lines(group) for group in (standard, others) if group)


def import_lines(entries: Iterable[Import]) -> str:
    """Import statements, sorted; one a module."""
    plain, named = set(), defaultdict(set)
    for place, name, alias in entries:
        words = f"{name or place} as {alias}" if alias else name or place
        if name:
            named[place].add(words)
        else:
            plain.add(words)
    lines = [f"import {words}" for words in sorted(plain)]
    return "\n".join(lines + [f"from {place} import {', '.join(sorted(named[place]))}" for place in sorted(named)])


def late_name(root: str) -> str:
    """The function that defines a module's names when they are needed."""
    return f"_{root.rpartition('.')[2]}_module"


def late_function(root: str, modules: list[Module], written: Mapping[str, str], before: list[Module]) -> str:
    """Modules whose import needs a library that is imported with a model, as the body of a function."""
    known = {entry for module in before for entry in module.imports} - {
        entry for module in before for entry in module.third_party()
    }
    body = "\n\n\n".join([imports(modules, known=known, inside=True), *(written[module.name] for module in modules)])
    names = sorted(name for module in modules if module.name == root for name in module.defined())
    returned = ", ".join(f"{name}={name}" for name in names)
    head = (
        f"@cache\ndef {late_name(root)}() -> SimpleNamespace:\n"
        f'    """{root.replace(".", "/")}.py, defined when a model is loaded: its imports take seconds."""\n'
    )
    tail = f"\n\n    return SimpleNamespace({returned})"
    return f"{head}{textwrap.indent(body, '    ')}{tail}"


def prompt_texts(prompts: Prompts) -> str:
    """The prompts as constants; the two long ones by the names under which the card speaks of them."""
    texts = asdict(prompts)
    system, user = texts.pop("system"), texts.pop("user")
    others = "".join(f'    "{name}": {quoted(text)},\n' for name, text in texts.items())
    title = heading("The prompts, verbatim", "{question}, {evidence}, {tool_turns} and the like are filled in.")
    return (
        f"{title}\n\nSYSTEM_PROMPT = {quoted(system)}\n\nUSER_TEMPLATE = {quoted(user)}\n\n"
        f"OTHER_PROMPTS = {{\n{others}}}"
    )


def quoted(text: str) -> str:
    """A string literal whose lines stand as they are, where that can be."""
    if "\n" not in text:
        return repr(text)
    escaped = text.replace("\\", "\\\\").replace('"""', '\\"""')
    literal = f'"""{escaped[:-1]}\\""""' if escaped.endswith('"') else f'"""{escaped}"""'
    return literal if ast.literal_eval(literal) == text else repr(text)
