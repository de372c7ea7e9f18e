"""Work for a server in threads: any completion function as an Engine, and whole episodes. Imports no torch."""

import queue
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from sqale_grpo.rollout.requests import Completion

POLL_SECONDS = 0.02  # how long an episode whose tools are done may wait for its next turn to be sent

Request = tuple[int, list[int], int]
Item = TypeVar("Item")
Result = TypeVar("Result")


def in_threads(work: Callable[[Item], Result], items: Sequence[Item], count: int) -> list[Result]:
    """``work`` of every item in order, ``count`` at once; what the first one to fail raises is raised.

    In daemons, which an error or Ctrl-C does not wait for: a server may take its time.
    """
    left: queue.SimpleQueue[int] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[int, Result | None, BaseException | None]] = queue.SimpleQueue()
    stopped = threading.Event()

    def run() -> None:
        while not stopped.is_set():
            try:
                place = left.get_nowait()
            except queue.Empty:
                return
            try:
                done.put((place, work(items[place]), None))
            except BaseException as error:  # whatever it is, who waits is to see it
                done.put((place, None, error))

    for place, _ in enumerate(items):
        left.put(place)
    for number in range(min(count, len(items))):
        threading.Thread(target=run, name=f"server {number}", daemon=True).start()
    found: dict[int, Result] = {}
    try:
        for _ in items:
            place, result, error = done.get()
            if error is not None:
                raise error
            found[place] = result  # type: ignore[assignment]  # there is one where there is no error
    finally:
        stopped.set()
    return [found[place] for place in range(len(items))]


class ConcurrentEngine:
    """Calls ``complete(request, token_ids, max_tokens)`` for up to ``connections`` requests at once.

    What ``complete`` raises is raised by ``collect``. Close it after use, or use it in a ``with`` block: what is still
    under way is left to itself, so that an error or Ctrl-C does not wait for a server that hangs.
    """

    def __init__(self, complete: Callable[[int, list[int], int], Completion], connections: int) -> None:
        self._complete = complete
        self._connections = connections
        self._threads: list[threading.Thread] = []
        self._asked: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._finished: queue.SimpleQueue[Completion | BaseException] = queue.SimpleQueue()

    def submit(self, request: int, token_ids: list[int], max_tokens: int) -> None:
        """Send the request, or queue it behind ``connections`` others."""
        self._asked.put((request, token_ids, max_tokens))
        if len(self._threads) < self._connections:
            # Daemons: the interpreter joins all other threads at its end, and these may wait for half an hour.
            thread = threading.Thread(target=self._work, name=f"requests {len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def collect(self) -> list[Completion]:
        """The requests finished by now, after at most POLL_SECONDS."""
        found: list[Completion] = []
        try:
            found.append(_checked(self._finished.get(timeout=POLL_SECONDS)))
            while True:
                found.append(_checked(self._finished.get_nowait()))
        except queue.Empty:
            return found

    def close(self) -> None:
        """Send nothing any more; threads end with the request that they are at."""
        try:
            while True:
                self._asked.get_nowait()
        except queue.Empty:
            for _ in self._threads:
                self._asked.put(None)

    def __enter__(self) -> "ConcurrentEngine":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _work(self) -> None:
        while (asked := self._asked.get()) is not None:
            try:
                self._finished.put(self._complete(*asked))
            except BaseException as error:  # whatever it is, the one who collects must see it
                self._finished.put(error)


def _checked(result: Completion | BaseException) -> Completion:
    if isinstance(result, BaseException):
        raise result
    return result
