"""What the queries of one turn may use together. Parent and worker keep the same account, from the same figures."""

Account = tuple[int, int, int, float]


class Budget:
    """``failures`` in a row, ``steps`` and ``seconds`` that are left; the last two of all queries added up.

    A query that counts and works starts the row of failures anew. ``spent`` is None, or why nothing more is run.
    """

    def __init__(self, most_failures: int, failures: int, steps: int, seconds: float) -> None:
        self.most_failures = most_failures
        self.failures, self.steps, self.seconds = failures, steps, seconds
        self.spent: str | None = None

    def account(self) -> Account:
        """What makes the same budget in another process."""
        return self.most_failures, self.failures, self.steps, self.seconds

    def note(self, counts: bool, failed: bool, steps: int, seconds: float) -> None:
        """Enter a query that has ended."""
        if counts:
            self.failures = self.failures - 1 if failed else self.most_failures
        self.steps -= steps
        self.seconds -= seconds
        if self.failures <= 0:
            self.spent = f"{self.most_failures} queries in a row failed"
        elif self.steps < 0:
            self.spent = "the queries of this turn took too many steps"
        elif self.seconds < 0:
            self.spent = "the queries of this turn took too long"
