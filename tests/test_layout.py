"""The rules of the house: who imports whom, that everything public is documented, that every shipped config works."""

import ast
import dataclasses
import functools
import itertools
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from sqale_grpo.settings.evaluation import EvaluationConfig, load_evaluation, with_names
from sqale_grpo.settings.keys import Config
from sqale_grpo.settings.load import flatten, known_keys, load_config

ROOT = Path(__file__).resolve().parent.parent
OURS = "sqale_grpo"
# The folders in the order in which a question flows through them, with the folders that each may import beside itself:
# env <- sampler, reward, curriculum <- corpus <- settings <- rollout <- what plays, learns, measures and shows.
CORE = {"env", "sampler", "reward", "corpus", "curriculum", "settings"}
FOLDERS: dict[str, set[str]] = {
    "env": set(),
    "sampler": {"env"},
    "reward": {"env"},
    "curriculum": {"env"},
    "corpus": {"env", "sampler", "reward", "curriculum"},
    "settings": {"env", "corpus", "curriculum"},
    "rollout": CORE,
    "agent": {"env", "reward", "settings", "rollout"},
    "demo": {*CORE, "rollout"},
    "train": {*CORE, "rollout", "demo"},
    "evaluate": {*CORE, "rollout", "demo"},
    "export": {*CORE, "rollout", "demo", "agent"},
    "sweep": {*CORE, "rollout", "evaluate"},
    "report": {*CORE, "rollout", "evaluate"},
    "integrations": {*CORE, "rollout"},
}
PACKAGES = tuple(FOLDERS)
# What each folder may import beside the standard library and ours; None: anything, but trl is for train alone.
LIBRARIES: dict[str, set[str] | None] = {
    "env": set(),
    "sampler": set(),
    "reward": {"sqlglot"},
    "corpus": {
        "sqale",
        "sqlglot",
        "datasets",
        "huggingface_hub",
        "pyarrow",
        "rich",
    },  # and the drivers of own/drivers.py
    "curriculum": set(),
    "settings": {"omegaconf", "yaml"},
    "agent": {"torch", "transformers", "vllm"},
    "report": {"pyarrow", "yaml", "jinja2", "markupsafe", "rich"},
    "integrations": {"datasets", "skyrl_gym"},
    **dict.fromkeys(("rollout", "demo", "train", "evaluate", "export", "sweep")),
}
# A batch sampler is torch's.
EXCEPTIONS = {"curriculum/batch_sampler.py": {"torch"}}
# A folder's programs are its roof: they may import what they run, and only what starts programs imports them.
ROOF = ("command.py", "__main__.py", "background.py")
LINES = 350


def modules(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imports(path: Path) -> Iterator[str]:
    """Dotted names of the modules that a file imports, inside functions too."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            # `from sqale_grpo import corpus` names a folder too
            yield from (f"{OURS}.{each.name}" for each in node.names) if node.module == OURS else (node.module or "",)


def folders(path: Path) -> set[str]:
    """The project's folders, other than its own, that a file imports."""
    ours = (name.split(".") for name in imports(path))
    return {parts[1] for parts in ours if parts[0] == OURS} - {path.relative_to(ROOT).parts[0]}


def below_the_roof(package: str) -> list[Path]:
    return [path for path in modules(package) if path.name not in ROOF]


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("package", PACKAGES)
def test_folders_import_only_what_they_may(package: str) -> None:
    for path in below_the_roof(package):
        assert folders(path) <= FOLDERS[package], f"{relative(path)} imports {folders(path) - FOLDERS[package]}"


@pytest.mark.parametrize("package", PACKAGES)
def test_folders_use_only_the_libraries_they_may(package: str) -> None:
    allowed = LIBRARIES[package]
    for path in modules(package):
        for name in imports(path):
            top = name.partition(".")[0]
            assert top != "trl" or package == "train", f"{relative(path)}: only train imports trl"
            if allowed is None or top == OURS or top in sys.stdlib_module_names:
                continue
            assert top in allowed | EXCEPTIONS.get(relative(path), set()), f"{relative(path)} imports {name}"


def test_no_circle_between_folders() -> None:
    drawn = {package: set().union(*map(folders, below_the_roof(package))) for package in PACKAGES}
    TopologicalSorter(drawn).prepare()  # raises CycleError, which names the circle
    TopologicalSorter(FOLDERS).prepare()


def test_only_what_starts_programs_imports_them() -> None:
    for path in modules(*PACKAGES):
        for name in imports(path):
            program = name.startswith(OURS) and f"{name.rpartition('.')[2]}.py" in ROOF
            assert not program or path.name in ROOF, f"{relative(path)} imports the program {name}"


def test_curriculum_takes_nothing_but_chance_from_env() -> None:
    names = {name for path in modules("curriculum") for name in imports(path) if name.startswith(f"{OURS}.env")}
    assert names <= {f"{OURS}.env.chance"}


def test_nothing_imports_the_report_but_programs() -> None:
    for path in modules(*PACKAGES):
        assert path.name in ROOF or "report" not in folders(path), relative(path)


def test_nothing_but_training_loads_torch() -> None:
    program = (
        "import sys; from sqale_grpo import corpus, curriculum, env, reward, sampler; "
        "from sqale_grpo.report import page, watch; from sqale_grpo.settings import of_run, corpora; "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_no_two_modules_define_a_public_class_of_one_name() -> None:
    """One name for one thing: a reader who meets it knows which it is."""
    places: dict[str, list[str]] = {}
    for path in modules(*PACKAGES):
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(relative(path))
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def public(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]]:
    """Public functions and classes of a module, and the public methods of those classes."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            yield node.name, node
            if isinstance(node, ast.ClassDef):
                for inner in node.body:
                    if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef) and not inner.name.startswith("_"):
                        yield f"{node.name}.{inner.name}", inner


@pytest.mark.parametrize("path", modules(*PACKAGES, "scripts", "benchmarks"), ids=relative)
def test_every_file_has_one_documented_subject(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    tree = parsed(path)
    if tree.body:
        assert ast.get_docstring(tree), "the first line says what the file is about"
    assert len(text.splitlines()) <= LINES, "a file this long has two subjects"
    programs = {"scripts", "benchmarks"}  # nobody imports these: their functions need no page in a reference
    for name, node in public(tree) if path.parent.name not in programs else ():
        if name.endswith(".close"):
            continue  # as every object's that holds something open
        assert ast.get_docstring(node), f"{name} (line {node.lineno}) has no docstring"
        if not isinstance(node, ast.ClassDef):
            assert node.returns is not None, f"{name} (line {node.lineno}) does not say what it returns"


CONFIGS = sorted((ROOT / "configs").glob("*.yaml"))
CORPORA = sorted((ROOT / "configs" / "corpus").glob("*.yaml"))


@pytest.mark.parametrize("path", CONFIGS, ids=relative)
def test_every_config_file_loads(path: Path) -> None:
    assert load_config([path]).name == path.stem


@pytest.mark.parametrize("path", sorted((ROOT / "configs" / "eval").glob("*.yaml")), ids=relative)
def test_every_evaluation_file_loads(path: Path) -> None:
    config = with_names(load_evaluation([path]))
    assert config.benchmark == config.corpus.name == path.stem
    assert config.name == f"{config.model.rpartition('/')[2].lower()}-{path.stem}-{config.schema}"


@pytest.mark.parametrize("path", CORPORA, ids=relative)
def test_every_corpus_file_loads_over_both(path: Path) -> None:
    for base in CONFIGS:
        config = load_config([base, path])
        # demo_large and its like are shapes of the demo corpus, trained with several seeds.
        shape = path.stem.startswith("demo_")
        assert config.name == (f"{path.stem}-seed{config.seed}" if shape else path.stem)
        assert config.corpus.name == ("demo" if shape else path.stem)


@pytest.mark.parametrize("path", sorted((ROOT / "configs" / "own").glob("*.yaml")), ids=relative)
def test_every_recipe_for_a_corpus_of_ones_own_loads(path: Path) -> None:
    config = load_config([path], ["corpus.source=my_data"])
    assert (config.name, config.corpus.name) == ("own", "jsonl")
    # A rate of all weights teaches adapters next to nothing.
    assert (config.train.learning_rate >= 1e-4) == bool(config.model.lora_rank or config.model.path == "demo")
    counts = (config.curriculum.gate_updates, config.train.anchor_updates, config.train.save_updates)
    assert all(0 < count <= config.train.updates // 2 for count in counts)


@pytest.mark.parametrize("path", sorted((ROOT / "configs" / "ablation").glob("*.yaml")), ids=relative)
def test_every_ablation_changes_one_thing(path: Path) -> None:
    files = [ROOT / "configs" / name for name in ("demo.yaml", "finding.yaml", "corpus/demo_large.yaml")]
    full, without = (flatten(load_config(each)) for each in (files, [*files, path]))
    changed = {name for name in full if full[name] != without[name]} - {"name"}
    assert without["name"] == path.stem
    assert len({name.partition(".")[0] for name in changed}) == 1 and len(changed) <= 2


def test_the_shallow_corpus_with_copies_has_them_alone_besides() -> None:
    base, shallow = ROOT / "configs" / "demo.yaml", ROOT / "configs" / "corpus" / "demo_shallow.yaml"
    copied = ROOT / "configs" / "reward" / "demo_shallow_copies.yaml"
    one, other = (flatten(load_config([base, path])) for path in (shallow, copied))
    assert {name for name in one if one[name] != other[name]} == {"name", "reward.counter_databases"}


@pytest.mark.full
@pytest.mark.parametrize("path", sorted((ROOT / "configs" / "accelerate").glob("*.yaml")), ids=relative)
def test_accelerate_reads_every_launch_file(path: Path) -> None:
    from accelerate.commands.config.config_args import load_config_from_file

    launch = load_config_from_file(str(path))
    assert launch.num_machines <= launch.num_processes
    assert 144 % launch.num_processes == 0


SECTIONS = ("settings/sections.py", "settings/keys.py", "settings/evaluation.py")  # where keys are declared


def read_keys(path: Path) -> Iterator[str]:
    """``section.key`` of every key that a file reads: config.env.workers, or env.workers; "section" is any section.

    Where keys are declared, a section's methods read it as ``self``, except its rules: to be checked is no use.
    """
    tree = parsed(path)
    if relative(path) in SECTIONS:
        rules = [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef) and each.name.endswith("rules")]
        skipped = {id(node) for each in rules for node in ast.walk(each)}
    else:
        skipped = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and id(node) not in skipped:
            yield f"{getattr(node.value, 'attr', getattr(node.value, 'id', ''))}.{node.attr}"


READERS = ("config", "section", "self", "asked", "policy")  # what a section or a whole configuration is called in code


@pytest.mark.parametrize("kind", [Config, EvaluationConfig])
def test_every_config_key_is_read_somewhere(kind: type) -> None:
    """A key must earn its place."""
    read = {name for path in modules(*PACKAGES, "scripts", "benchmarks") for name in read_keys(path)}
    unread = {
        name
        for name in known_keys(kind)
        if not read & {name, *(f"{where}.{name.rpartition('.')[2]}" for where in READERS)}
    }
    assert not unread


# Declared in two places because they mean two things: a name, a seed, a rate, a size of this and of that.
HOMONYMS = {
    *("backend", "candidates", "dtype", "enable_thinking", "learning_rate", "max_tables", "name", "output", "seed"),
    *("counter_databases", "query_seconds", "split", "vllm_memory_share"),
}


def test_no_key_is_declared_twice() -> None:
    """Training and evaluation share their sections; where a default differs, a subclass says so."""
    wholes = (Config(), EvaluationConfig())
    kinds = {kind for whole in wholes for kind in (type(whole), *map(type, vars(whole).values()))}
    bases = {base for kind in kinds for base in kind.__mro__ if dataclasses.is_dataclass(base)}
    declared: dict[str, set[type]] = {}
    for kind in bases:
        for name, its_type in kind.__annotations__.items():
            if not dataclasses.is_dataclass(its_type):
                declared.setdefault(name, set()).add(kind)
    twice = {
        name
        for name, owners in declared.items()
        for one, other in itertools.combinations(owners, 2)
        if not shared(one, other, name)
    }
    assert twice == HOMONYMS


def shared(one: type, other: type, name: str) -> bool:
    """Whether both have the key from one section, of which one may be the other's subclass."""
    return any(name in base.__dict__.get("__annotations__", {}) and issubclass(other, base) for base in one.__mro__)


@pytest.mark.parametrize("path", modules("benchmarks"), ids=relative)
def test_every_benchmark_states_its_limit(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert '"ok"' in text or "ok=" in text, "the last line is one JSON object that holds ok"
    assert "limit" in text, "and the limit that the figure is held to"


@pytest.mark.parametrize(
    ("file", "extras"),
    [
        ("constraints.txt", ("test", "track", "plot", "own")),
        ("constraints-vllm.txt", ("test", "track", "vllm", "kernels")),
    ],
)
def test_every_dependency_is_pinned(file: str, extras: tuple[str, ...]) -> None:
    """A fresh install is the tested one: each package that pyproject.toml asks for has an exact version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [
        *project["dependencies"],
        *(line for name in extras for line in project["optional-dependencies"][name]),
    ]
    pinned = {line.partition("==")[0].lower().replace("_", "-") for line in (ROOT / file).read_text().splitlines()}
    names = {re.split(r"[<>=\[]", line)[0].lower() for line in wanted}
    assert names <= pinned
