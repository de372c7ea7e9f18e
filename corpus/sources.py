"""The corpora by name."""

import os
import shutil
from pathlib import Path

from sqale_grpo.corpus import bird, ehrsql, jsonl, spider, synsql
from sqale_grpo.corpus.demo import DemoShape
from sqale_grpo.corpus.question import CorpusError, Source


def _sqale(source: str | Path | None, split: str) -> Source:
    from sqale_grpo.corpus.sqale import open_source  # late: whoever plays a prepared corpus needs no loader's package

    return open_source(source, split)


LOADERS = {
    "sqale": _sqale,
    "bird": bird.open_source,
    "synsql": synsql.open_source,
    "ehrsql": ehrsql.open_source,
    "spider": spider.open_source,
    "jsonl": jsonl.open_source,
}
NAMES = ("demo", *LOADERS)


def open_source(
    name: str, source: str | Path | None, split: str, out: Path, seed: int, shape: DemoShape | None = None
) -> Source:
    """One split of corpus ``name``. The demo corpus is written first, into ``source`` or else beside the result."""
    if name == "demo":
        return _sqale(_demo_folder(source, out, seed, shape), split)
    if name not in LOADERS:
        raise CorpusError(f"no corpus {name!r}: choose one of {', '.join(NAMES)}")
    return LOADERS[name](source, split)


_MORE = "name the corpus that it should hold, as in corpus.name=jsonl"


def check_demo_source(source: str | Path | None) -> None:
    """The demo corpus is generated: CorpusError for a folder of anybody's that it would be written into."""
    if source is None or (Path(source) / "queries").is_dir():
        return
    if not Path(source).exists():
        raise CorpusError(
            f"there is no folder {source}, and corpus.name=demo needs none: leave corpus.source out, or {_MORE}"
        )
    if Path(source).is_dir() and any(Path(source).glob("questions*.jsonl")):
        raise CorpusError(
            f"{source} is a corpus of your own, and corpus.name=demo generates another one: add "
            "configs/corpus/jsonl.yaml to the command"
        )
    if Path(source).exists():
        raise CorpusError(
            f"corpus.name=demo generates its questions, and would write them into {source}: leave corpus.source out, "
            f"or {_MORE}"
        )


def _demo_folder(source: str | Path | None, out: Path, seed: int, shape: DemoShape | None) -> Path:
    from sqale_grpo.corpus.demo import write_demo_corpus  # generating pulls in vocabulary that no other corpus needs

    if source and Path(source).exists():
        check_demo_source(source)
    folder = Path(source) if source else out / f"source-{seed}"
    if not (folder / "queries").exists():
        unfinished = folder.with_name(f".{folder.name}.{os.getpid()}.new")
        unfinished.mkdir(parents=True, exist_ok=True)
        write_demo_corpus(unfinished, seed, shape)
        try:
            unfinished.replace(folder)
        except OSError:  # another process was faster: the same seed gives the same files
            if not (folder / "queries").exists():
                raise
            shutil.rmtree(unfinished)
    return folder
