"""``sqale-grpo corpus new | check | add``: make a corpus of one's own, say what is wrong with it, add to it."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from sqale_grpo.corpus.own.add import add_questions
from sqale_grpo.corpus.own.check import Checked, check_folder
from sqale_grpo.corpus.own.keys import FoundKey
from sqale_grpo.corpus.own.new import LEFT_OUT, PROPOSED, TEST, TRAIN, NewCorpus, Wishes, make_corpus
from sqale_grpo.corpus.own.take import LeftOut
from sqale_grpo.corpus.question import CorpusError
from sqale_grpo.env.files import check_place
from sqale_grpo.env.text import harmless

SHOWN = 5  # of a long list
SOMETHING_DROPPED = 1  # the exit status of a check that found such a question


def add_parsers(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """The three commands, beside the other ones of ``sqale-grpo corpus``."""
    one = commands.add_parser(
        "new",
        help="make a corpus from SQLite, DuckDB, CSV, Parquet, Postgres or MySQL",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="""examples:
  sqale-grpo corpus new my_data shop.sqlite --questions questions.csv
  sqale-grpo corpus new my_data shop=exports/csv_folder
  sqale-grpo corpus new my_data postgresql://me@db:5432/shop --rows 50000 --questions asked.csv
The password of a server may stand in PGPASSWORD or MYSQL_PWD. Sources are read, never written.""",
    )
    one.add_argument("folder", metavar="FOLDER", help="the corpus; it must not be there yet")
    one.add_argument("sources", metavar="[NAME=]SOURCE", nargs="+", help="a database; NAME is its db_id")
    one.add_argument(
        "--questions", metavar="FILE", action="append", default=[], help="CSV, JSON lines, Spider's or BIRD's"
    )
    one.add_argument("--dialect", help="of the questions' SQL: postgres, mysql, duckdb, sqlite (default: the source's)")
    one.add_argument("--rows", type=_positive, help="most rows of a table; rows that others refer to come beside")
    one.add_argument("--found-keys", choices=("ask", "yes", "no"), default="ask", help="keys that the values show")
    one.add_argument(
        "--test", type=_share, default=0.2, metavar="SHARE", help="of the questions, held out (default: 0.2)"
    )
    one.add_argument("--propose", type=_positive, default=60, metavar="N", help="questions, where none are given")
    one.add_argument("--encoding", help="of CSV files that are not UTF-8")
    one.set_defaults(command=_new)
    two = commands.add_parser("check", help="say which questions would be dropped or are weak, and what to do")
    two.add_argument("folder", metavar="FOLDER", help="a corpus of your own")
    two.set_defaults(command=_check)
    three = commands.add_parser("add", help="add questions to a corpus of your own")
    three.add_argument("folder", metavar="FOLDER", help="a corpus of your own")
    three.add_argument("files", metavar="FILE", nargs="+", help="CSV, JSON lines, Spider, BIRD")
    three.add_argument("--dialect", default="sqlite", help="of the SQL; another than sqlite needs its --source")
    three.add_argument("--source", metavar="[NAME=]SOURCE", action="append", default=[], help="where such SQL runs")
    three.add_argument(
        "--test", type=_share, default=0.2, metavar="SHARE", help="of the questions, held out (default: 0.2)"
    )
    three.add_argument("--encoding", help="of CSV files that are not UTF-8")
    three.set_defaults(command=_add)


def _new(options: argparse.Namespace) -> None:
    wishes = Wishes(
        questions=tuple(map(Path, options.questions)),
        dialect=options.dialect,
        rows=options.rows,
        test_share=options.test,
        proposals=options.propose,
        encoding=options.encoding,
        workers=os.cpu_count() or 1,
    )
    check_place(options.folder, "FOLDER", CorpusError)
    console = Console(stderr=True)
    with console.status("starting") as status:

        def choose(db_id: str, found: list[FoundKey]) -> list[FoundKey]:
            status.stop()
            chosen = _choose(db_id, found, options.found_keys)
            status.start()
            return chosen

        made = make_corpus(
            Path(options.folder), options.sources, wishes, choose, lambda text: status.update(Text(harmless(text)))
        )
    print(harmless("\n".join(_told(made))))


def _choose(db_id: str, found: list[FoundKey], how: str) -> list[FoundKey]:
    """The keys to declare: asked for on a terminal; elsewhere those that their names point at, too."""
    likely = [each for each in found if each.named]
    if how == "no" or not found:
        return []
    print(harmless(f"{db_id}: keys that are not declared, but that the values allow:"))
    for number, each in enumerate(found, 1):
        print(harmless(f"  {number}. {each}" + ("" if each.named else "   (by its values alone)")))
    if how == "yes" or not (sys.stdin.isatty() and sys.stdout.isatty()):
        print(harmless(f"declared here: {_listed([str(found.index(each) + 1) for each in likely]) or 'none'}"))
        return likely
    usual = ",".join(str(found.index(each) + 1) for each in likely) or "none"
    while True:
        # Printed, since input() writes its prompt to standard error.
        print(f"declare which? numbers, all, none [{usual}] ", end="", flush=True)
        answer = input().strip().lower() or usual
        if answer in ("all", "none"):
            return found if answer == "all" else []
        try:
            return [found[number - 1] for number in map(_positive, answer.replace(",", " ").split())]
        except (ValueError, IndexError, argparse.ArgumentTypeError):
            print("give numbers of the list, as in 1,3; or all; or none")


def _told(made: NewCorpus) -> list[str]:
    """What was made, and the next command."""
    lines = []
    for database in made.databases:
        rows = database.written.rows
        lines.append(f"{database.db_id}: {len(rows):,} tables, {sum(rows.values()):,} rows")
        lines += [f"  {note}" for note in database.notes]
    if made.train or made.test:
        lines.append(f"{made.train:,} questions to train on in {TRAIN}, {made.test:,} held out in {TEST}")
        if not made.test:
            lines.append("  none is held out: with more questions, or --test 0.5, there is something to measure on")
    lines += _left_out(made.left_out, str(made.folder / LEFT_OUT))
    if made.proposed or not (made.train or made.test):
        proposed = made.folder / PROPOSED
        lines.append(
            f"{made.proposed:,} questions are proposed in {proposed}: read them, delete what nobody would ask, then"
        )
        lines.append(f"next: sqale-grpo corpus add {made.folder} {proposed}")
    else:
        lines.append(f"next: sqale-grpo corpus check {made.folder}")
    return lines


def _left_out(left: Sequence[LeftOut], place: str) -> list[str]:
    if not left:
        return []
    more = f", and {len(left) - SHOWN} more in {place}" if len(left) > SHOWN and place else ""
    shown = [f"  {each.asked.place}: {each.reason}" for each in left[:SHOWN]]
    return [f"{len(left):,} questions are not taken{more}:", *shown]


def _check(options: argparse.Namespace) -> int:
    console = Console(stderr=True)
    with console.status("running every query"):
        checked = check_folder(Path(options.folder))
    for each in checked:
        for finding in each.findings:
            print(harmless(f"{finding.place}: {finding.effect}: {finding.reason}\n  -> {finding.mend}"))
    print(harmless("\n".join(_summary(each) for each in checked)))
    if any(each.dropped for each in checked):
        return SOMETHING_DROPPED
    if any(each.path.name == TRAIN for each in checked):
        print(
            f"next: sqale-grpo train configs/own/cpu.yaml corpus.source={options.folder} --dry-run, "
            "or another file of configs/own/"
        )
    return 0


def _summary(checked: Checked) -> str:
    weak = len(checked.findings) - checked.dropped
    good = checked.questions - len({finding.place for finding in checked.findings})
    return f"{checked.path}: {checked.questions:,} questions, {good:,} good, {checked.dropped:,} dropped, {weak:,} weak"


def _add(options: argparse.Namespace) -> None:
    folder = Path(options.folder)
    train, test, left = add_questions(
        folder, list(map(Path, options.files)), options.test, options.dialect, options.source, options.encoding
    )
    print(f"{train:,} questions are added to {folder / TRAIN}, {test:,} to {folder / TEST}")
    for line in _left_out(left, ""):
        print(harmless(line))
    print(f"next: sqale-grpo corpus check {folder}")


def _listed(words: Sequence[str]) -> str:
    return ", ".join(words)


def _positive(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no share from 0 to under 1")
    return share
