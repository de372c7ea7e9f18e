"""Any completion function as an Engine: each request in a thread of its own, as for a server. Imports no torch."""

import queue
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from train.rollout.requests import Completion

POLL_SECONDS = 0.02  # how long an episode whose tools are done may wait for its next turn to be sent


class ConcurrentEngine:
    """Calls ``complete(request, token_ids, max_tokens)`` for up to ``connections`` requests at once.

    What ``complete`` raises is raised by ``collect``. Close it after use, or use it in a ``with`` block.
    """

    def __init__(self, complete: Callable[[int, list[int], int], Completion], connections: int) -> None:
        self._complete = complete
        self._threads = ThreadPoolExecutor(connections, thread_name_prefix="requests")
        self._finished: queue.SimpleQueue[Future[Completion]] = queue.SimpleQueue()

    def submit(self, request: int, token_ids: list[int], max_tokens: int) -> None:
        """Send the request, or queue it behind ``connections`` others."""
        self._threads.submit(self._complete, request, token_ids, max_tokens).add_done_callback(self._finished.put)

    def collect(self) -> list[Completion]:
        """The requests finished by now, after at most POLL_SECONDS."""
        found: list[Completion] = []
        try:
            found.append(self._finished.get(timeout=POLL_SECONDS).result())
            while True:
                found.append(self._finished.get_nowait().result())
        except queue.Empty:
            return found

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)

    def __enter__(self) -> "ConcurrentEngine":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
