"""What a query may use, how it can fail, and what it returns: the types around the sandbox."""

from dataclasses import dataclass, fields
from typing import Literal, NamedTuple

Kind = Literal["syntax", "schema", "denied", "timeout", "memory", "rows", "other", "machine", "not_run"]

LARGEST = 2**31 - 1  # what SQLite takes as a limit


@dataclass(frozen=True)
class Limits:
    """Bounds of one query. Times in seconds, sizes in bytes unless the name says otherwise.

    ``steps`` is the budget: instructions of SQLite's virtual machine, as many on a busy laptop as on an idle server.
    ``seconds`` is a safety net far above it, for what counts no steps. ``rows`` and ``length`` are the project's
    published defaults; the rest are our assumptions, set well above what real gold queries need. Raises ValueError for
    one that is not a whole number from 1 to ``LARGEST``; only ``seconds`` may be a fraction.
    """

    seconds: float = 30.0  # wall time of the query itself, waiting for a free worker not counted
    steps: int = 400_000_000  # 3 to 7 s of an idle core; of 11,200 real gold queries the longest takes 16 million
    rows: int = 10_000  # rows fetched
    length: int = 1_000_000  # one string, blob or sorted row
    sql_length: int = 1_000_000  # the statement's own text
    depth: int = 1_000  # nesting of one expression (a chain of n ORs has depth n)
    like_pattern: int = 5_000  # LIKE and GLOB take time quadratic in the pattern
    instructions: int = 5_000_000  # of the compiled statement; stops statements that explode while they are compiled
    memory_mb: int = 256  # what one query may add to its worker's data
    result_mb: int = 64  # all fetched rows together

    def __post_init__(self) -> None:
        for field in fields(self):
            value, whole = getattr(self, field.name), field.name != "seconds"
            if not isinstance(value, int if whole else int | float) or not 0 < value <= LARGEST:
                number = "a whole number" if whole else "a number"
                raise ValueError(
                    f"env limit {field.name} is {value!r}: it must be {number} above 0 and up to {LARGEST}"
                )


class Query(NamedTuple):
    """What a worker is asked: a statement and its most rows, or with ``sql`` None the schema.

    More rows are cut off where ``partial``, else an error. ``cell_chars``: values are cut to what a cell of that size
    shows (0: they are not). ``stored``: the statement is ours and may meet values longer than ``Limits.length``.
    ``counts``: a failure of it is one of ``env.budget``'s failures in a row. ``plain``: it is run as a program does
    that hands the text to Python's sqlite3 and fetches everything (``env.plain``); what is kept of its rows: ``head``
    the first ``cap``, ``different`` each different one once.
    """

    sql: str | None
    cap: int
    partial: bool
    cell_chars: int = 0
    stored: bool = False
    counts: bool = False
    plain: Literal["", "head", "different"] = ""


class SqlError(Exception):
    """A query that did not run to its end.

    ``kind`` is one of

    - ``syntax``: SQLite's parser refuses the text, or there is no statement in it
    - ``schema``: a table, column, function … that does not exist, or an ambiguous name
    - ``denied``: anything but reading this database
    - ``timeout``: more steps than ``Limits.steps``, or longer than ``Limits.seconds``
    - ``memory``: more memory than allowed, or a string, blob, result or LIKE pattern that is too long
    - ``rows``: more rows than allowed
    - ``other``: what is left, e.g. two statements, an unbound parameter, integer overflow
    - ``machine``: not the statement's doing, twice in a row: a worker that was killed, no descriptor left, a disk that
      cannot be read, a file that vanished; it says nothing about the query
    - ``not_run``: a query before it used up what a turn's queries may use together (``env.budget``)

    ``message`` is SQLite's own text where SQLite has one.
    """

    def __init__(self, kind: Kind, message: str) -> None:
        super().__init__(kind, message)
        self.kind = kind
        self.message = message

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


@dataclass(frozen=True)
class QueryResult:
    """Rows of a query that ran: values are int, float, str, bytes or None, exactly as a sqlite3 connection gives them.

    Text that is not UTF-8 is decoded with ``surrogateescape``. ``truncated``: more rows exist than were asked for.
    ``tables``: the base tables that the statement reads, through views too, named as declared, without ``sqlite_*``.
    """

    columns: tuple[str, ...]
    rows: list[tuple]
    truncated: bool
    tables: frozenset[str]
