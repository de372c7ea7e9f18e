"""Messages between the trainer and a worker process: a length, then that many bytes, over a socket's descriptor."""

import os

HEADER = 4
CHUNK = 1 << 16


def framed(payload: bytes) -> bytes:
    """One message, ready to be sent alone or behind others."""
    return len(payload).to_bytes(HEADER, "little") + payload


def send(descriptor: int, data: bytes) -> None:
    """Write framed messages to a blocking descriptor. Raises BrokenPipeError where the other side is gone."""
    sent = os.write(descriptor, data)
    while sent < len(data):
        sent += os.write(descriptor, memoryview(data)[sent:])


class Reader:
    """The messages that arrive on a descriptor, one after the other; one read may bring several."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.data = b""

    def receive(self) -> bytes:
        """The next payload. Raises EOFError where the other side is gone, BlockingIOError at the socket's time-out."""
        size = self._size()
        if not size or len(self.data) < size:
            size = self._read()
        payload, self.data = self.data[HEADER:size], self.data[size:]
        return payload

    def _size(self) -> int:
        """Bytes of the next message with its length; 0 where the length has not arrived."""
        return HEADER + int.from_bytes(self.data[:HEADER], "little") if len(self.data) >= HEADER else 0

    def _read(self) -> int:
        """Read until the next message is whole; its bytes."""
        size, parts, have = self._size(), [self.data], len(self.data)
        while not size or have < size:
            part = os.read(self.descriptor, max(CHUNK, size - have))
            if not part:
                raise EOFError("the other side closed the socket")
            parts.append(part)
            have += len(part)
            if not size:
                self.data = b"".join(parts)
                size, parts = self._size(), [self.data]
        self.data = b"".join(parts)
        return size
