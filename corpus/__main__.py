"""``python -m corpus prepare --corpus NAME --source PATH --out DIR`` and ``python -m corpus inspect DIR``."""

import argparse
import sys

from corpus.errors import CorpusError
from corpus.inspection import print_report
from corpus.preparation import prepare
from corpus.prepared import PreparedCorpus, open_prepared
from corpus.sources import NAMES
from curriculum import Buckets, masked_length  # only here: the package itself knows nothing of what uses it


def main(arguments: list[str] | None = None) -> int:
    """The command line; 1 after bad input or what the system refuses (a full disk), 130 after Ctrl-C: one line each."""
    options = _parser().parse_args(arguments)
    try:
        options.command(options)
    except (CorpusError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped: the same command goes on with what is left", file=sys.stderr)
        return 130
    return 0


def _prepare(options: argparse.Namespace) -> None:
    corpus = prepare(
        options.corpus,
        options.source,
        options.out,
        split=options.split,
        limit=options.limit,
        workers=options.workers,
        seconds=options.seconds,
        max_rows=options.max_rows,
        seed=options.seed,
    )
    print(f"{len(corpus):,} questions of {corpus.name} ({corpus.split}) are ready in {corpus.directory}")


def _inspect(options: argparse.Namespace) -> None:
    corpus = open_prepared(options.directory)
    print_report(corpus, _lengths(corpus))


def _lengths(corpus: PreparedCorpus) -> list[tuple[str, ...]]:
    """(bucket, longest masked SQL, questions, share) of the curriculum's buckets."""
    lengths = [masked_length(sql) for sql in corpus.gold_sqls()]
    buckets = Buckets.from_lengths(lengths)
    longest = (*(f"{bound:g}" for bound in buckets.bounds), str(max(lengths)))
    counts = [len(members) for members in buckets.members]
    return [
        (name, bound, f"{count:,}", f"{count / len(lengths):.1%}")
        for name, bound, count in zip(buckets.names, longest, counts, strict=True)
    ]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m corpus", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    one = commands.add_parser("prepare", help="write the index and the databases of a corpus, once")
    one.add_argument("--corpus", required=True, choices=NAMES)
    one.add_argument("--source", help="folder of the corpus; 'hub' for the published SQaLe; not needed for demo")
    one.add_argument("--out", required=True, help="folder to write")
    one.add_argument("--split", default="train", choices=("train", "dev", "test"))
    one.add_argument("--limit", type=int, help="read this many questions")
    one.add_argument("--workers", type=int, help="processes that run gold queries (default: one a CPU)")
    one.add_argument("--seconds", type=float, help="time limit of a gold query (default: 5 for train, 30 otherwise)")
    one.add_argument("--max-rows", type=int, help="rows that a gold query may return (default: 10,000)")
    one.add_argument("--seed", type=int, default=42, help="of the generated demo corpus")
    one.set_defaults(command=_prepare)
    other = commands.add_parser("inspect", help="print the figures of a prepared corpus")
    other.add_argument("directory", metavar="DIR", help="a prepared folder")
    other.set_defaults(command=_inspect)
    return parser


if __name__ == "__main__":
    sys.exit(main())
