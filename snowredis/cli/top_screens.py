"""Screens on top of the view of `snowredis top`: one worker in full, and the workers that died. By Textual."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from snowredis.cli.output import Line, pairs
from snowredis.cli.status_text import death_table
from snowredis.cli.worker_text import life_rows

if TYPE_CHECKING:
    from snowredis.monitor.snapshot import PoolInfo, Snapshot, WorkerInfo

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


class Details(ModalScreen[None]):
    """One worker in full, on top of the table."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,enter,q", "dismiss", "Back")]
    CSS = """
    Details { align: center middle; }
    Details Static { width: auto; max-width: 95%; height: auto; padding: 1 2; border: round $primary; }
    """

    def __init__(self, worker: WorkerInfo, info: PoolInfo, time_text: Callable[[int], str]) -> None:
        super().__init__()
        self.worker, self._info, self._time_text = worker, info, time_text

    def compose(self) -> ComposeResult:
        yield Static(as_text(self._lines()))

    def _lines(self) -> list[Line]:
        return pairs(life_rows(self.worker, self._info, self._time_text), indent=0)

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
            self.worker, self._info = worker, snapshot.info
        self.query_one(Static).update(as_text([*self._lines(), *gone]))


class Deaths(ModalScreen[None]):
    """Workers that died in the last hour, on top of the table."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,enter,q,d", "dismiss", "Back"),
        Binding("A", "app.acknowledge", "Acknowledge"),
    ]
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
        new = sum(not death.acknowledged for death in deaths)
        hint = f", {new:,} not acknowledged: A acknowledges them" if new else ", all acknowledged"
        head: Line = [(f"died in the last hour: {len(deaths):,}", "strong"), (hint, "dim")]
        # without the border, the padding and the margin
        width = self.app.size.width * 95 // 100 - 6
        return as_text([head, [], *death_table(deaths, info.now_ms, width, self._time_text)])
