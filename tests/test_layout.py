"""The rules of the house: who imports whom, that everything public is documented, that every shipped config works."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from sqale_grpo.settings.evaluation import EvaluationConfig, load_evaluation, with_names
from sqale_grpo.settings.keys import Config
from sqale_grpo.settings.load import flatten, known_keys, load_config

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("env", "sampler", "reward", "corpus", "curriculum", "train", "evaluate", "report")
# What each package may import beside the standard library and itself; None: anything.
ALLOWED: dict[str, set[str] | None] = {
    "env": set(),
    "sampler": {"env"},
    "reward": {"env", "sqlglot"},
    "corpus": {"sqale", "sqlglot", "datasets", "huggingface_hub", "pyarrow", "rich"},
    "curriculum": {"env"},
    "train": None,
    "evaluate": None,
    "report": {
        *("env", "sampler", "corpus", "curriculum", "train", "evaluate"),
        *("pyarrow", "yaml", "jinja2", "markupsafe"),
    },
}
# A batch sampler is torch's. The corpora's command line shows length buckets, which the package itself does not know.
EXCEPTIONS = {"curriculum/batch_sampler.py": {"torch"}, "corpus/__main__.py": {"curriculum"}}
LINES = 350


def modules(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def imports(path: Path) -> Iterator[str]:
    """Dotted names of the modules that a file imports, inside functions too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module or ""


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_import_only_what_they_may(package: str) -> None:
    allowed = ALLOWED[package]
    for path in modules(package):
        for name in imports(path):
            top = name.partition(".")[0]
            if package != "train":
                assert top != "trl", f"{relative(path)}: only train imports trl"
            if allowed is None or top == package or top in sys.stdlib_module_names:
                continue
            assert top in allowed | EXCEPTIONS.get(relative(path), set()), f"{relative(path)} imports {name}"


def test_curriculum_takes_nothing_but_chance_from_env() -> None:
    names = {name for path in modules("curriculum") for name in imports(path) if name.startswith("env")}
    assert names <= {"env.chance"}


def test_nothing_imports_the_report_but_programs() -> None:
    for path in modules(*PACKAGES):
        if path.relative_to(ROOT).parts[0] != "report":
            assert not any(name.partition(".")[0] == "report" for name in imports(path)), relative(path)


def test_nothing_but_training_loads_torch() -> None:
    program = (
        "import env, reward, sampler, curriculum, corpus, report.file, report.watch, sys; "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)


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
    tree = ast.parse(text)
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
    assert config.name == f"{config.model.rpartition('/')[2].lower()}-{path.stem}-{config.tables}"


@pytest.mark.parametrize("path", CORPORA, ids=relative)
def test_every_corpus_file_loads_over_both(path: Path) -> None:
    for base in CONFIGS:
        config = load_config([base, path])
        # demo_large and its like are shapes of the demo corpus, trained with several seeds.
        shape = path.stem.startswith("demo_")
        assert config.name == (f"{path.stem}-seed{config.seed}" if shape else path.stem)
        assert config.corpus.name == ("demo" if shape else path.stem)


@pytest.mark.parametrize("path", sorted((ROOT / "configs" / "ablation").glob("*.yaml")), ids=relative)
def test_every_ablation_changes_one_thing(path: Path) -> None:
    files = [ROOT / "configs" / name for name in ("demo.yaml", "finding.yaml", "corpus/demo_large.yaml")]
    full, without = (flatten(load_config(each)) for each in (files, [*files, path]))
    changed = {name for name in full if full[name] != without[name]} - {"name"}
    assert without["name"] == path.stem
    assert len({name.partition(".")[0] for name in changed}) == 1 and len(changed) <= 2


@pytest.mark.parametrize("path", sorted((ROOT / "configs" / "accelerate").glob("*.yaml")), ids=relative)
def test_accelerate_reads_every_launch_file(path: Path) -> None:
    from accelerate.commands.config.config_args import load_config_from_file

    launch = load_config_from_file(str(path))
    assert launch.num_machines <= launch.num_processes
    assert 144 % launch.num_processes == 0


@pytest.mark.parametrize("kind", [Config, EvaluationConfig])
def test_every_config_key_is_read_somewhere(kind: type) -> None:
    """A key must earn its place."""
    own = {"config.py", "config_load.py", "config_check.py", "config_docs.py"}
    read = set()
    for path in modules(*PACKAGES, "scripts", "benchmarks"):
        if path.parent.name in ("train", "evaluate") and path.name in own:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute):
                # config.env.workers, or env.workers where env is config.env; "section" is any.
                read.add(f"{getattr(node.value, 'attr', getattr(node.value, 'id', ''))}.{node.attr}")
    unread = {
        name for name in known_keys(kind) if not read & {name, f"config.{name}", f"section.{name.rpartition('.')[2]}"}
    }
    assert not unread


@pytest.mark.parametrize("path", modules("benchmarks"), ids=relative)
def test_every_benchmark_states_its_limit(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert '"ok"' in text or "ok=" in text, "the last line is one JSON object that holds ok"
    assert "limit" in text, "and the limit that the figure is held to"


@pytest.mark.parametrize(
    ("file", "extras"),
    [("constraints.txt", ("test", "track", "plot")), ("constraints-vllm.txt", ("test", "track", "vllm"))],
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
