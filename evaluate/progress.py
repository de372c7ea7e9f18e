"""What an evaluation shows while it runs: a bar on a terminal, else one plain line a chunk."""

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

from sqale_grpo.env.text import harmless
from sqale_grpo.evaluate.backend import Backend, Failure
from sqale_grpo.evaluate.records import TokenCounts
from sqale_grpo.rollout.world import World
from sqale_grpo.settings.evaluation import EvaluationConfig

REFRESH = 0.5  # seconds between two looks at how many episodes have ended


class ChunkProgress:
    """Counts episodes. The bar moves as episodes end, within a chunk too."""

    def __init__(self, console: Console, total: int, questions_done: int, config: EvaluationConfig) -> None:
        """``total`` episodes; ``questions_done``: those of an earlier start."""
        self.console, self.total, self.name = console, total, config.name
        self.done = questions_done * config.candidates
        self.right = self.played = self.failed = 0
        self.candidates = config.candidates
        self.started = time.monotonic()
        # All of it fits into 80 columns.
        self.bar = Progress(
            SpinnerColumn("line"),
            BarColumn(bar_width=14),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.description}"),
            console=console,
            disable=not console.is_terminal,
        )

    def __enter__(self) -> "ChunkProgress":
        self.task = self.bar.add_task("episodes", total=self.total, completed=self.done)
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def watched(self, backend: Backend) -> Backend:
        """The same backend, its episodes counted while it plays."""
        return _Watched(backend, self)

    def advance(self, rows: Sequence[dict[str, Any]], failed: int) -> None:
        """A chunk is over: ``rows`` are its records, ``failed`` the questions that have none."""
        self.done += len(rows) + failed * self.candidates
        self.played += len(rows)
        self.failed += failed
        self.right += sum(row["tier"] == "equivalent" for row in rows)
        rate = f"equivalent {self.right / self.played:.1%}" if self.played else ""
        lost = f"  {self.failed} questions failed" if self.failed else ""
        self.bar.update(self.task, completed=self.done, description=f"{rate}{lost}")
        if not self.console.is_terminal:
            seconds = time.monotonic() - self.started
            self.console.print(
                f"{harmless(str(self.name))}: {self.done} of {self.total} episodes  {rate}{lost}  {seconds:.0f} s",
                highlight=False,
                markup=False,
                soft_wrap=True,  # a log file has no width
            )

    def count(self, episodes: Sequence[World]) -> None:
        """Show how many of a chunk's episodes have ended so far."""
        ended = sum(each.episode.finished is not None for each in episodes)
        self.bar.update(self.task, completed=self.done + ended)


class _Watched:
    """Counts a backend's episodes from a thread."""

    def __init__(self, backend: Backend, progress: ChunkProgress) -> None:
        self.facts = backend.facts
        self._backend, self._progress = backend, progress

    def play(self, episodes: Sequence[World], pool: ThreadPoolExecutor) -> list[TokenCounts | Failure]:
        stop = threading.Event()

        def watch() -> None:
            while not stop.wait(REFRESH):
                self._progress.count(episodes)

        thread = threading.Thread(target=watch, daemon=True)
        if self._progress.console.is_terminal:
            thread.start()
        try:
            return self._backend.play(episodes, pool)
        finally:
            stop.set()
            if thread.is_alive():
                thread.join()

    def remarks(self) -> list[str]:
        return self._backend.remarks()

    def close(self) -> None:
        self._backend.close()
