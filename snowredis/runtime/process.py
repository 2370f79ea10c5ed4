"""What an integration says of this process, for every generator in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from snowredis.reclaim.crash_record import CrashRecords


class ThisProcess:
    """One for the process; a forked child starts with what its parent said.

    Attributes:
        label: for generators that were given none: what people see beside the worker id.
        crash_records: where generators write down what the parent needs to give their leases back; those of a forked
            child do not.
    """

    def __init__(self) -> None:
        self.label = ""
        self.crash_records: CrashRecords | None = None


THIS = ThisProcess()
