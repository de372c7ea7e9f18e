"""Messages between the trainer and a worker process: a length, then that many bytes, over a socket's descriptor."""

import os

HEADER = 4


def send(descriptor: int, payload: bytes) -> None:
    """Write one message (bytes) to a blocking descriptor. Raises BrokenPipeError where the other side is gone."""
    data = len(payload).to_bytes(HEADER, "little") + payload
    sent = os.write(descriptor, data)
    while sent < len(data):
        sent += os.write(descriptor, memoryview(data)[sent:])


def receive(descriptor: int) -> bytes:
    """Read one message. Raises EOFError where the other side is gone, BlockingIOError at the socket's time-out."""
    size = int.from_bytes(read(descriptor, HEADER), "little")
    return read(descriptor, size)


def read(descriptor: int, size: int) -> bytes:
    """Exactly ``size`` bytes: one message may wait behind another."""
    data = os.read(descriptor, size)
    if len(data) == size:
        return data
    parts = [data]
    missing = size - len(data)
    while missing:
        if not parts[-1]:
            raise EOFError("the other side closed the socket")
        parts.append(os.read(descriptor, missing))
        missing -= len(parts[-1])
    return b"".join(parts)
