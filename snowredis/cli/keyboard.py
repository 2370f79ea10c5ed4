"""Single keys from a terminal, without Enter; by termios, so nothing where there is none."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from collections.abc import Callable, Iterator

# what terminals send, and how it is called here; the second form is of "application mode"
_SEQUENCES = {
    "\x1b[A": "up",
    "\x1bOA": "up",
    "\x1b[B": "down",
    "\x1bOB": "down",
    "\x1b[5~": "page up",
    "\x1b[6~": "page down",
    "\x1b[H": "home",
    "\x1bOH": "home",
    "\x1b[1~": "home",
    "\x1b[F": "end",
    "\x1bOF": "end",
    "\x1b[4~": "end",
    "\x1b": "escape",
    "\r": "enter",
    "\n": "enter",
    "\x7f": "backspace",
    "\x08": "backspace",
}
# the longest first, since some begin with others
_LONGEST_FIRST = sorted(_SEQUENCES, key=len, reverse=True)

# waits up to so many seconds; answers the keys that came
Keys = Callable[[float], list[str]]


def split_keys(text: str) -> list[str]:
    """Names of keys, and characters as they are; of an unknown sequence nothing."""
    keys = []
    while text:
        known = next((sequence for sequence in _LONGEST_FIRST if text.startswith(sequence)), "")
        if known == "\x1b" and len(text) > 1 and text[1] in "[O":
            # a sequence that nobody knows ends with a letter or ~
            end = next(
                (at for at, char in enumerate(text[2:], 2) if char.isalpha() or char == "~"), len(text) - 1
            )
            text = text[end + 1 :]
        elif known:
            keys.append(_SEQUENCES[known])
            text = text[len(known) :]
        else:
            keys.append(text[0])
            text = text[1:]
    return keys


@contextlib.contextmanager
def keyboard() -> Iterator[Keys]:
    """Read keys for a while. Ctrl-C stays what it is. Where standard input is no terminal nothing is ever typed."""
    try:
        import termios
        import tty

        number = sys.stdin.fileno()
        before = termios.tcgetattr(number)
    except (ImportError, OSError, ValueError, termios.error):

        def nothing(seconds: float) -> list[str]:
            time.sleep(seconds)
            return []

        yield nothing
        return

    def read(seconds: float) -> list[str]:
        ready, _, _ = select.select([number], [], [], seconds)
        # all that is there: a sequence comes in one piece
        data = os.read(number, 1024) if ready else b""
        if ready and not data:
            # the terminal is gone
            time.sleep(seconds)
        return split_keys(data.decode("utf-8", "ignore"))

    try:
        tty.setcbreak(number, termios.TCSADRAIN)
        yield read
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, before)
