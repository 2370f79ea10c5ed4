"""Ports of loopback for servers that a test starts."""

import contextlib
import random
import socket

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
