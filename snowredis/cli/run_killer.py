"""Kill a process group when `snowredis run` has ended, or when the reservation of its worker id has.

A process of its own, so that nothing that stops `snowredis run` stops it, too. It is run as a file, without the
package, and imports little: it must start fast. Each line of stdin says which group (0: none), and until when by the
wall clock and by the monotonic one, in s. The end of stdin is the end of `snowredis run`.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time

# the wall clock may be set forward meanwhile
_EVERY_S = 0.2


def main() -> None:
    """Wait for the end of stdin, or of the reservation."""
    group, wall_s, monotonic_s, rest = 0, 0.0, 0.0, b""
    while True:
        left_s = min(wall_s - time.time(), monotonic_s - time.monotonic())
        if group and left_s <= 0:
            _kill(group)
            group = 0
        if not select.select([0], [], [], min(left_s, _EVERY_S) if group else None)[0]:
            continue
        data = os.read(0, 4096)
        if not data:
            _kill(group)
            return
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            words = line.split()
            group, wall_s, monotonic_s = int(words[0]), float(words[1]), float(words[2])


def _kill(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if group:
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    for _number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(_number, signal.SIG_IGN)
    main()
