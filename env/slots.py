"""Places of a pool for its workers: one thread at a time uses one, and connections are closed without waiting."""

import marshal
import threading
from collections import deque

from sqale_grpo.env.process import Worker
from sqale_grpo.env.wire import framed, send


class Slot:
    """A place for one worker: its lock, and the keys whose connections it may close."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.worker: Worker | None = None
        self.since = 0.0  # when the request that holds the lock was taken up
        self.closing: deque[int] = deque()

    def take_closing(self) -> tuple[int, ...]:
        """Keys to close, for the next message; the lock is held."""
        keys = []
        while self.closing:
            key = self.closing.popleft()
            if self.worker is not None and key in self.worker.opened:
                del self.worker.opened[key]
                keys.append(key)
        return tuple(keys)

    def release(self) -> None:
        """Give the worker back; what was to be closed meanwhile is closed now."""
        self.flush()
        self.lock.release()
        while self.closing and self.lock.acquire(blocking=False):
            self.flush()
            self.lock.release()

    def flush(self) -> None:
        """Tell the worker to close what it may; no answer comes. The lock is held."""
        keys = self.take_closing() if self.closing else ()
        if keys and self.worker is not None:
            try:
                send(self.worker.descriptor, framed(marshal.dumps((keys, 0, None, (), None))))
            except OSError:
                self.worker.end()
                self.worker = None


def preference(slot: Slot, key: int) -> int:
    """Order in which to try slots: where the connection is warm, where a process runs, the rest."""
    worker = slot.worker
    if worker is None:
        return 2
    return 0 if key in worker.opened else 1


def take_free(slots: list[Slot], key: int) -> Slot | None:
    """One of the slots, locked, without waiting; None where all are taken."""
    for slot in sorted(slots, key=lambda slot: preference(slot, key)):
        if slot.lock.acquire(blocking=False):
            return slot
    return None
