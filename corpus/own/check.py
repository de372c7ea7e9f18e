"""``sqale-grpo corpus check FOLDER``: every question that would be dropped or is weak, with its line and what to do."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sqale_grpo.corpus import jsonl, reasons
from sqale_grpo.corpus.gold import Verdict
from sqale_grpo.corpus.json_stream import read_json_lines
from sqale_grpo.corpus.own.judge import Weighed, judge
from sqale_grpo.corpus.own.new import PROPOSED, TEST, TRAIN
from sqale_grpo.corpus.question import CorpusError, RawQuestion

DROPPED, WEAK = "dropped", "weak"
MEND = {
    reasons.NO_PHRASING: "write the question",
    reasons.NO_GOLD: "write its SQL",
    reasons.DUPLICATE: "give it another question_id, or delete the line",
    reasons.FAILS: "mend the SQL; `sqale-grpo env FOLDER/NAME.sqlite` runs queries as training does",
    reasons.UNKNOWN_TABLE: "mend the table's name",
    reasons.TIMES_OUT: "write a cheaper query, or raise env.query_steps and env.query_seconds",
    reasons.TOO_MANY_ROWS: "ask for fewer rows, or raise env.max_rows",
    reasons.NO_TABLE: "ask for something that stands in the tables",
    reasons.READS_VIEW: "ask for the tables behind the view",
    reasons.READS_SCHEMA: "ask for what the tables hold, not for the tables",
    reasons.BAD_DATABASE: "replace the database's file",
    reasons.NO_DATABASE: "mend its db_id, or put the database into the folder as DB_ID.sqlite",
    reasons.RANDOM: "write it without random()",
    reasons.CLOCK: "write the date into question and SQL in place of now",
    reasons.LIMIT_TIES: "add columns to ORDER BY until no two rows tie at the limit, and say so in the question",
    reasons.TIE_ORDER: "add columns to ORDER BY, or leave it out",
    reasons.CONCAT_ORDER: "list the values as rows",
    reasons.ROW_ORDER: "name the row that is meant: an aggregate or ORDER BY with LIMIT",
}
CAUSES = {
    reasons.RANDOM: "its rows are drawn by chance",
    reasons.CLOCK: "its rows change with the clock",
    reasons.LIMIT_TIES: "rows tie where LIMIT cuts",
    reasons.TIE_ORDER: "the order of rows that tie is open",
    reasons.CONCAT_ORDER: "it strings values together in the order of the scan",
    reasons.ROW_ORDER: "its rows follow the order of the scan",
}


@dataclass(frozen=True)
class Finding:
    """What is wrong with a question. ``effect``: dropped, or weak; an unstable one is left out of training as well."""

    place: str
    question_id: str
    effect: str
    reason: str
    mend: str


@dataclass(frozen=True)
class Checked:
    """A file of questions, how many it holds, and what was found."""

    path: Path
    questions: int
    findings: list[Finding]

    @property
    def dropped(self) -> int:
        """Questions that nobody would meet."""
        return sum(finding.effect == DROPPED for finding in self.findings)


def check_folder(folder: Path, workers: int | None = None) -> list[Checked]:
    """Both files of questions of a corpus folder, or the proposals where there are none. Raises CorpusError."""
    if folder.is_file():
        raise CorpusError(f"{folder} is a file: name the folder that holds it, {folder.parent}")
    if not folder.is_dir():
        raise CorpusError(f"there is no folder {folder}: make one with `sqale-grpo corpus new {folder} SOURCE`")
    present = [folder / name for name in (TRAIN, TEST) if (folder / name).is_file()]
    present = present or [folder / PROPOSED] * (folder / PROPOSED).is_file()
    if not present:
        raise CorpusError(f"{folder} has no {TRAIN}: add questions with `sqale-grpo corpus add {folder} FILE`")
    return [check_file(folder, path, workers) for path in present]


def check_file(folder: Path, path: Path, workers: int | None = None) -> Checked:
    """One file of questions over the databases of ``folder``. Raises CorpusError for a line that is none."""
    lines = [number for number, _ in read_json_lines(path)]
    questions = list(jsonl.questions(path))
    by_database: dict[str, list[int]] = {}
    for place, raw in enumerate(questions):
        if raw.gold_sql.strip():
            by_database.setdefault(raw.db_id, []).append(place)
    places = jsonl.found_databases(folder, by_database)
    asked = [(db_id, path, [questions[n].gold_sql for n in by_database[db_id]]) for db_id, path in places.items()]
    judged = judge(asked, workers)
    verdicts = {
        n: each for db_id, weighed in judged.items() for n, each in zip(by_database[db_id], weighed, strict=True)
    }
    for db_id in by_database.keys() - places.keys():
        missing = Weighed(Verdict(reasons.NO_DATABASE, repr(db_id)))
        verdicts.update(dict.fromkeys(by_database[db_id], missing))
    counts = Counter(raw.question_id for raw in questions)
    findings: list[Finding] = []
    seen: set[str] = set()
    for number, (line, raw) in enumerate(zip(lines, questions, strict=True)):
        repeated = counts[raw.question_id] > 1 and raw.question_id in seen
        seen.add(raw.question_id)
        findings += _findings(f"{path}:{line}", raw, verdicts.get(number), repeated)
    if path.name == TRAIN and not questions:
        raise CorpusError(f"{path} holds no question: add some with `sqale-grpo corpus add {folder} FILE`")
    return Checked(path, len(questions), [*findings, *_twins(path, lines, questions)])


def _findings(place: str, raw: RawQuestion, judged: Weighed | None, repeated: bool) -> Iterator[Finding]:
    def finding(effect: str, reason: str, detail: str = "", mend: str = "") -> Finding:
        text = CAUSES.get(reason, reason) + (f": {detail}" if detail else "")
        return Finding(place, raw.question_id, effect, text, mend or MEND.get(reason, "mend the line"))

    if not raw.phrasings:
        yield finding(DROPPED, reasons.NO_PHRASING)
    elif judged is None:
        yield finding(DROPPED, reasons.NO_GOLD)
    elif repeated:
        yield finding(DROPPED, reasons.DUPLICATE)
    elif judged.verdict.dropped:
        yield finding(DROPPED, judged.verdict.dropped, judged.verdict.detail)
    elif judged.verdict.unstable:
        yield finding(WEAK, judged.verdict.unstable)
    elif judged.weak:
        yield finding(WEAK, judged.weak, mend="ask for something of which the data says more")


def _twins(path: Path, lines: Sequence[int], questions: Sequence[RawQuestion]) -> Iterator[Finding]:
    """One text with two queries: no answer can be right for both."""
    first: dict[tuple[str, str, str], tuple[int, str]] = {}
    for line, raw in zip(lines, questions, strict=True):
        for text in raw.phrasings:
            key = (raw.db_id, " ".join(text.lower().split()), raw.evidence)
            earlier, sql = first.setdefault(key, (line, raw.gold_sql))
            if sql.strip() != raw.gold_sql.strip():
                reason = f"line {earlier} asks the same and has another query"
                yield Finding(f"{path}:{line}", raw.question_id, WEAK, reason, "say in the question what differs")
