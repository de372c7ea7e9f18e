"""``sqale-grpo corpus new FOLDER SOURCE…``, ``check FOLDER``, ``add FOLDER FILE…``: a corpus of one's own.

``doctor PATH`` says which corpus a folder holds and what is wrong with it. ``prepare --corpus NAME --source PATH --out
DIR`` writes what training reads, ``prepare --for CONFIG...`` only what a run draws; ``inspect DIR`` prints its figures,
and ``score DIR`` how often a wrong query is taken for right.
"""

import argparse
from pathlib import Path

from sqale_grpo.corpus.doctor import examine
from sqale_grpo.corpus.inspection import print_report
from sqale_grpo.corpus.own.command import add_parsers
from sqale_grpo.corpus.preparation import prepare
from sqale_grpo.corpus.prepared import PreparedCorpus, open_prepared
from sqale_grpo.corpus.question import CorpusError
from sqale_grpo.corpus.score_report import print_score
from sqale_grpo.corpus.sources import NAMES
from sqale_grpo.curriculum import Buckets
from sqale_grpo.env.limits import Limits
from sqale_grpo.env.text import harmless
from sqale_grpo.settings.corpora import prepare_drawn
from sqale_grpo.settings.load import load_words


def main(arguments: list[str] | None = None) -> int:
    """Do what the command line asks. Raises CorpusError for bad input."""
    options = _parser().parse_args(arguments)
    return options.command(options) or 0


def _prepare(options: argparse.Namespace) -> None:
    if options.run:
        _prepare_drawn(options)
        return
    for name in ("corpus", "out"):
        if getattr(options, name) is None:
            raise CorpusError(f"prepare needs --{name}, or --for CONFIG... with a run's configuration")
    corpus = prepare(
        options.corpus,
        options.source,
        options.out,
        split=options.split or "train",
        limit=options.limit,
        workers=options.workers,
        seconds=options.seconds,
        max_rows=options.max_rows,
        steps=options.steps,
        counter_databases=options.counter_databases or 0,
        seed=42 if options.seed is None else options.seed,
    )
    print(f"{len(corpus):,} questions of {corpus.name} ({corpus.split}) are ready in {corpus.directory}")


def _prepare_drawn(options: argparse.Namespace) -> None:
    """What the run of ``--for`` draws; its configuration has all that the other options say."""
    own = ("corpus", "split", "limit", "seconds", "steps", "max_rows", "counter_databases", "seed")
    given = [name for name in own if getattr(options, name) is not None]
    if given:
        option = f"--{given[0].replace('_', '-')}"
        raise CorpusError(f"--for takes {option} from the configuration: leave {option} out, or set its key")
    config = load_words(options.run)
    corpus = prepare_drawn(config, options.source, options.out, options.workers)
    left = corpus.summary["not_drawn"]
    print(f"{len(corpus):,} questions that the run draws are ready in {corpus.directory}; {left:,} are not executed")


def _doctor(options: argparse.Namespace) -> int:
    folder = Path(options.folder).expanduser()
    found = examine(folder)
    for each in found:
        print(harmless(f"{each.corpus} {each.split}: {each.title}"))
        for ill, remedy in each.ills:
            print(harmless(f"  {ill}\n  -> {remedy}"))
    for each in found:
        out = f"data/prepared/{each.corpus}-{each.split}"
        command = f"sqale-grpo corpus prepare --corpus {each.corpus} --split {each.split} --source {folder} --out {out}"
        print(harmless(f"next: {command}"))
    return int(any(each.ills for each in found))


def _inspect(options: argparse.Namespace) -> None:
    corpus = open_prepared(options.directory)
    print_report(corpus, _lengths(corpus))


def _score(options: argparse.Namespace) -> None:
    corpus = open_prepared(options.directory)
    print_score(corpus, options.questions, options.seed, options.workers, options.json)


def _lengths(corpus: PreparedCorpus) -> list[tuple[str, ...]]:
    """(bucket, longest masked SQL, questions, share) of the curriculum's buckets."""
    lengths = corpus.measured().lengths
    buckets = Buckets.from_lengths(lengths)
    longest = (*(f"{bound:g}" for bound in buckets.bounds), str(max(lengths)))
    counts = [len(members) for members in buckets.members]
    return [
        (name, bound, f"{count:,}", f"{count / len(lengths):.1%}")
        for name, bound, count in zip(buckets.names, longest, counts, strict=True)
    ]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sqale-grpo corpus", description=(__doc__ or "").replace("``", "`"))
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    add_parsers(commands)
    look = commands.add_parser("doctor", help="say which corpus a folder holds, and what is missing or broken")
    look.add_argument("folder", metavar="PATH", help="where a corpus was unpacked")
    look.set_defaults(command=_doctor)
    one = commands.add_parser("prepare", help="write the index and the databases of a corpus, once")
    one.add_argument(
        "--for",
        dest="run",
        nargs="+",
        default=[],
        metavar="CONFIG | section.key=value",
        help="a run's configuration: execute and build only what it draws, where the run looks for it",
    )
    one.add_argument("--corpus", choices=NAMES)
    one.add_argument("--source", help="folder of the corpus; 'hub' for the published SQaLe; not needed for demo")
    one.add_argument("--out", help="folder to write")
    one.add_argument("--split", choices=("train", "dev", "mini_dev", "test"))
    one.add_argument("--limit", type=int, help="read this many questions")
    one.add_argument("--workers", type=int, help="processes that run gold queries (default: one a CPU)")
    one.add_argument("--seconds", type=float, help="time limit of a gold query (default: 30)")
    one.add_argument("--steps", type=int, help=f"virtual-machine steps of a gold query (default: {Limits.steps:,})")
    one.add_argument("--max-rows", type=int, help="rows that a gold query may return (default: 10,000)")
    one.add_argument("--counter-databases", type=int, help="changed copies to choose for each question: 0, 1 or 2")
    one.add_argument("--seed", type=int, help="of the generated demo corpus (default: 42)")
    one.set_defaults(command=_prepare)
    other = commands.add_parser("inspect", help="print the figures of a prepared corpus")
    other.add_argument("directory", metavar="DIR", help="a prepared folder")
    other.set_defaults(command=_inspect)
    last = commands.add_parser("score", help="measure how often a wrong query is taken for right")
    last.add_argument("directory", metavar="DIR", help="a prepared folder")
    last.add_argument("--questions", type=int, help="measure so many, drawn by --seed (default: all)")
    last.add_argument("--seed", type=int, default=42, help="of the draw of questions")
    last.add_argument("--workers", type=int, help="processes that run queries (default: one a CPU)")
    last.add_argument("--json", action="store_true", help="a JSON line for each figure, the last one for all questions")
    last.set_defaults(command=_score)
    return parser
