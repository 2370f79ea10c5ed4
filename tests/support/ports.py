"""Ports of loopback for servers that a test starts, and servers that only look like one."""

import contextlib
import random
import socket
import threading
from collections.abc import Callable, Iterator

# below those that Linux and macOS give to outgoing connections: one of these may take a port before its server does
_FIRST, _LAST = 10_240, 20_480
# processes of a run choose at once
_RANDOM = random.SystemRandom()


def free_port(*, also: int = 0) -> int:
    """Return a free port; *also*: the port that is so much higher is free, too."""
    while True:
        port = _RANDOM.randrange(_FIRST, _LAST)
        with contextlib.suppress(OSError), socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", port))
            if also:
                other.bind(("127.0.0.1", port + also))
            return port


@contextlib.contextmanager
def listening(reply: Callable[[socket.socket], None]) -> Iterator[int]:
    """Listen like a Redis, and *reply* to each command; yields the port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    while connection.recv(65_536):
                        reply(connection)

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
