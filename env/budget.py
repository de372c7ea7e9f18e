"""What the queries of one turn may use together. Parent and worker keep the same account, from the same figures."""

from typing import Any

Account = tuple[int, int, int, float, int]


class Budget:
    """``failures`` in a row, and ``steps``, ``seconds`` and ``size`` that are left, each of all queries added up.

    ``size``: bytes of what the queries return. A query that counts and works starts the row of failures anew. ``spent``
    is None, or why nothing more is run.
    """

    def __init__(self, most_failures: int, failures: int, steps: int, seconds: float, size: int) -> None:
        self.most_failures = most_failures
        self.failures, self.steps, self.seconds, self.size = failures, steps, seconds, size
        self.spent: str | None = None

    def account(self) -> Account:
        """What makes the same budget in another process."""
        return self.most_failures, self.failures, self.steps, self.seconds, self.size

    def note(self, counts: bool, reply: tuple[Any, ...], steps: int, seconds: float) -> None:
        """Enter a query that has ended with ``reply``, which is what ``Connection.run`` gives."""
        failed = bool(reply[0])
        if counts:
            self.failures = self.failures - 1 if failed else self.most_failures
        self.steps -= steps
        self.seconds -= seconds
        self.size -= sum(map(len, reply[3][1])) if reply[3] else 0
        if self.failures <= 0:
            self.spent = f"{self.most_failures} queries in a row failed"
        elif self.steps < 0:
            self.spent = "the queries of this turn took too many steps"
        elif self.seconds < 0:
            self.spent = "the queries of this turn took too long"
        elif self.size < 0:
            self.spent = "the queries of this turn returned too much"
