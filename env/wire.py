"""Messages between the trainer and a worker process: a length, then that many bytes, over a socket's descriptor."""

import os

HEADER = 4
CHUNK = 1 << 16


def send(descriptor: int, payload: bytes) -> None:
    """Write one message (bytes) to a blocking descriptor. Raises BrokenPipeError where the other side is gone."""
    data = len(payload).to_bytes(HEADER, "little") + payload
    sent = os.write(descriptor, data)
    while sent < len(data):
        sent += os.write(descriptor, memoryview(data)[sent:])


def receive(descriptor: int) -> bytes:
    """Read one message. Raises EOFError where the other side is gone, BlockingIOError where the socket's time-out ends.

    Each side asks and answers in turn, so that a read never meets the start of a second message.
    """
    data = os.read(descriptor, CHUNK)
    if len(data) < HEADER:
        raise EOFError("the other side closed the socket")
    size = HEADER + int.from_bytes(data[:HEADER], "little")
    if len(data) == size:
        return data[HEADER:]
    parts = [data[HEADER:]]
    missing = size - len(data)
    while missing:
        part = os.read(descriptor, min(missing, 1 << 20))
        if not part:
            raise EOFError("the other side closed the socket in the middle of a message")
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)
