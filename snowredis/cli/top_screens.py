"""Screens on top of the view of `snowredis top`: one worker in full, and the workers that died. By Textual."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from snowredis.cli.output import Line, duration, pairs, printable
from snowredis.cli.status_text import death_table

if TYPE_CHECKING:
    from snowredis.monitor.snapshot import Snapshot, WorkerInfo

STYLES = {
    "": "",
    "strong": "bold",
    "dim": "dim",
    "good": "green",
    "note": "cyan",
    "warn": "yellow",
    "bad": "red",
}


def as_text(lines: Sequence[Line]) -> Text:
    """Return *lines* as rich's Text, in which nothing is read as markup."""
    segments = [(text, STYLES[style]) for line in lines for text, style in [*line, ("\n", "")]]
    return Text.assemble(*segments[:-1], no_wrap=True, overflow="ellipsis")


# fields of WorkerInfo that are times
_TIMES = ("claimed_ms", "renewed_ms", "lease_end_ms", "reserved_from_ms", "reserved_until_ms")


class Details(ModalScreen[None]):
    """All fields of one worker, on top of the table."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,enter,q", "dismiss", "Back")]
    CSS = """
    Details { align: center middle; }
    Details Static { width: auto; max-width: 95%; height: auto; padding: 1 2; border: round $primary; }
    """

    def __init__(self, worker: WorkerInfo, time_text: Callable[[int], str]) -> None:
        super().__init__()
        self.worker, self._time_text = worker, time_text

    def compose(self) -> ComposeResult:
        yield Static(as_text(_details(self.worker, self._time_text)))

    def show(self, snapshot: Snapshot) -> None:
        """Show the worker as of *snapshot*."""
        number = self.worker.worker
        worker = next((each for each in snapshot.worker_ids if each.worker == number), None)
        gone: list[Line] = []
        if worker is None or worker.token_hash != self.worker.token_hash:
            died = any(death.worker == number for death in snapshot.deaths)
            text = "it died" if died else "it is not alive any more"
            gone = [[], [(f"{text}; this is its last known state", "warn")]]
        else:
            self.worker = worker
        self.query_one(Static).update(as_text([*_details(self.worker, self._time_text), *gone]))


class Deaths(ModalScreen[None]):
    """Workers that died in the last hour, on top of the table."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,enter,q,d", "dismiss", "Back")]
    CSS = """
    Deaths { align: center middle; }
    Deaths VerticalScroll { width: auto; max-width: 95%; height: auto; max-height: 90%; border: round $primary; }
    Deaths Static { width: auto; height: auto; padding: 1 2; }
    """

    def __init__(self, snapshot: Snapshot, time_text: Callable[[int], str]) -> None:
        super().__init__()
        self._snapshot, self._time_text = snapshot, time_text

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(self._text())

    def show(self, snapshot: Snapshot) -> None:
        """Show the deaths as of *snapshot*."""
        self._snapshot = snapshot
        self.query_one(Static).update(self._text())

    def _text(self) -> Text:
        deaths, info = self._snapshot.deaths, self._snapshot.info
        if not deaths:
            return Text("no worker died in the last hour")
        head: Line = [(f"died in the last hour: {len(deaths):,}", "strong")]
        # without the border, the padding and the margin
        width = self.app.size.width * 95 // 100 - 6
        return as_text([head, [], *death_table(deaths, info.now_ms, width, self._time_text)])


def _details(worker: WorkerInfo, time_text: Callable[[int], str]) -> list[Line]:
    rows: list[tuple[str, str | Line]] = []
    for field in fields(worker):
        value = getattr(worker, field.name)
        name = field.name.removesuffix("_ms").replace("_", " ")
        if field.name in _TIMES:
            text = time_text(value)
        elif field.name in ("lease_left_ms", "heartbeat_age_ms"):
            text = duration(value)
        elif field.name == "clock_offset_ms":
            text = f"{value:+,} ms"
        else:
            text = f"{value:,}" if field.name.startswith("ids_") else printable(str(value), 200)
        rows.append((name, text))
    return pairs(rows, indent=0)
