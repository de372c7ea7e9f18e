"""How large the demo corpus is: tables a schema, rows a table, schemas, questions."""

from dataclasses import dataclass

from corpus.demo_words import NOUNS
from corpus.errors import CorpusError

ROWS = 70  # the published median
MOST_TABLES = len(NOUNS)


@dataclass(frozen=True)
class DemoShape:
    """The size of the databases and their number; the defaults follow SQaLe.

    ``tables``: fewest and most of a schema. ``rows``: of a table. ``schemas`` and ``questions`` (of one schema) are
    (train, test) counts.
    """

    tables: tuple[int, int] = (3, 120)
    rows: int = ROWS
    schemas: tuple[int, int] = (160, 60)
    questions: tuple[int, int] = (24, 6)

    def check(self) -> None:
        """Raise CorpusError where no corpus has this shape."""
        low, high = self.tables
        if not 2 <= low <= high <= MOST_TABLES:
            raise CorpusError(
                f"the demo corpus cannot have {low} to {high} tables a schema: choose two rising numbers from 2 to "
                f"{MOST_TABLES}, for which it has names"
            )
        if min(self.rows, *self.schemas, *self.questions) < 1:
            raise CorpusError(f"the demo corpus needs one of everything at least, not {self}")
