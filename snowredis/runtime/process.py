"""What an integration says of this process, for every generator in it."""

from __future__ import annotations


class ThisProcess:
    """One for the process; a forked child starts with what its parent said.

    Attributes:
        label: for generators that were given none: what people see beside the worker id.
    """

    def __init__(self) -> None:
        self.label = ""


THIS = ThisProcess()
