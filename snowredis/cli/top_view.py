"""Terminal view of `snowredis top`, by Textual. Imported only when it opens.

Redis is read in a thread, so that keys work while Redis is slow or does not answer. Everything that comes from
Redis is shown as rich's Text after printable(), so neither control characters nor markup have an effect.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Input, Static
from textual.worker import Worker, WorkerState

from snowredis.cli import pool_text
from snowredis.cli.exit_codes import STOP_SIGNALS, ExitCode
from snowredis.cli.output import Column, Line, Segment, column_widths, pad, pairs, printable, time_of
from snowredis.monitor.polling import Reading

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
        return pairs(pool_text.life_rows(self.worker, self._info, self._time_text), indent=0)

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


# DataTable takes 0.2 ms to lay out a row; all workers are sorted and filtered, and the first ones are shown
MAX_ROWS = 2_000
# conditions that are shown at a time
_MAX_CONDITIONS = 4
# of the two sides of the table, its vertical scroll bar takes the right one
_SCROLL_BAR = 2


class WorkerTable(DataTable[Text]):
    """Table of workers; Home and End go to the first and last row."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("home,g", "scroll_top", "First", show=False),
        Binding("end,G", "scroll_bottom", "Last", show=False),
        Binding("k", "cursor_up", "Up", show=False),
        Binding("j", "cursor_down", "Down", show=False),
    ]


class TopView(App[int]):
    """View of the workers of one pool. run() returns an ExitCode, or None after an error in the view itself.

    Args:
        read: reads the pool, with or without worker ids that have no lease; may block. It is called in a thread, never
            twice at a time.
        where: the address of Redis.
        interval_s: seconds between two reads; one that takes longer delays the next.
        show_all: whether worker ids without a lease are shown.
        first: the result of a call of read() before the view opened, with a snapshot.
        time_text: shows ms since 1970.
    """

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #pool { height: 3; }
    #error { color: $text-error; text-style: bold; height: auto; display: none; }
    #filter { display: none; }
    #status { height: 1; color: $text-accent; }
    WorkerTable { height: 1fr; scrollbar-size-vertical: 2; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "sort(1)", "Sort"),
        Binding("S", "sort(-1)", "Sort back", show=False),
        Binding("r", "reverse", "Reverse"),
        Binding("slash", "filter", "Filter"),
        Binding("escape", "clear_filter", "Clear filter", show=False),
        Binding("a", "toggle_all", "All"),
        Binding("space", "read", "Read now", show=False),
        Binding("q", "exit_with(0)", "Quit"),
        Binding("ctrl+c", f"exit_with({int(ExitCode.INTERRUPTED)})", "Quit", show=False, priority=True),
    ]

    def __init__(
        self,
        read: Callable[[bool], Reading],
        where: str,
        *,
        interval_s: float,
        show_all: bool,
        first: Reading,
        time_text: Callable[[int], str] = time_of,
    ) -> None:
        super().__init__()
        self._read_pool, self._where, self._interval_s = read, where, interval_s
        self._show_all, self._time_text = show_all, time_text
        if first.snapshot is None:
            raise ValueError("the view opens with a snapshot")
        self._reading, self._snapshot = first, first.snapshot
        self._is_reading = False
        self._sort, self._reverse, self._words = "worker", False, list[str]()
        # the table as it is drawn: widths and titles of its columns, cells of its rows, and whose rows they are
        self._head: list[tuple[int, str]] = []
        self._cells: list[list[Segment]] = []
        self._shown: list[WorkerInfo] = []

    def compose(self) -> ComposeResult:
        yield Static(id="pool")
        yield Static(id="error")
        yield WorkerTable(cursor_type="row", cell_padding=0)
        yield Input(placeholder="words of host, label, state, pid or worker id", id="filter", compact=True)
        yield Static(id="status")
        yield Footer()

    def on_mount(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, *STOP_SIGNALS):
            # outside the main thread, and on Windows, signals keep their meaning
            with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
                loop.add_signal_handler(number, self.action_exit_with, int(ExitCode.INTERRUPTED))
        self.query_one(WorkerTable).focus()
        self._show_conditions()
        self.set_interval(self._interval_s, self.action_read)

    def on_resize(self) -> None:
        self.call_after_refresh(self._show)

    # --- reading -----------------------------------------------------------------------------------

    def action_read(self) -> None:
        """Start to read the pool, unless it is being read already."""
        if not self._is_reading:
            self._is_reading = True
            self.run_worker(self._read, thread=True)

    def _read(self) -> Reading:
        """Read the pool. Runs in a thread; blocks on Redis."""
        return self._read_pool(self._show_all)

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        if event.state is not WorkerState.SUCCESS:
            return
        self._is_reading = False
        result = event.worker.result
        if isinstance(result, Reading):
            self._reading, self._snapshot = result, result.snapshot or self._snapshot
            self._show_conditions()
            self._show()
            if isinstance(self.screen, Details):
                self.screen.show(self._snapshot)

    def _show_conditions(self) -> None:
        """Show what is wrong. While the pool cannot be read, the table keeps the last state."""
        texts = [
            f"{condition.level}: {printable(condition.render(self._time_text), 400)}"
            for condition in self._reading.status.conditions
            if condition.level != "notice"
        ]
        if (error := self._reading.error) is not None:
            texts.append(
                f"shown is the state of {self._time_text(self._reading.read_at_ms)}. {printable(str(error), 300)}"
            )
        banner = self.query_one("#error", Static)
        banner.update(Text("\n".join(texts[:_MAX_CONDITIONS])))
        banner.display = bool(texts)

    # --- what is shown -----------------------------------------------------------------------------

    def _show(self) -> None:
        """Draw the newest state. The worker under the cursor stays at its place on the screen."""
        lines = [
            *pool_text.pool_lines(self._where, self._snapshot.info),
            pool_text.headline(self._reading.status),
        ]
        self.query_one("#pool", Static).update(as_text(lines))
        table = self.query_one(WorkerTable)
        at = table.cursor_row
        before = self._shown[at].worker if at < len(self._shown) else None
        matching = self._matching()
        self._shown = matching[:MAX_ROWS]
        self._fill(table)
        after = next((row for row, worker in enumerate(self._shown) if worker.worker == before), at)
        if after != table.cursor_row:
            table.move_cursor(row=after, scroll=False)
        if after != at:
            table.scroll_to(y=table.scroll_y + after - at, animate=False)
        self._show_status(len(matching))

    def _matching(self) -> list[WorkerInfo]:
        """Return the workers that match the filter, sorted; equal ones by worker id, so that no row jumps."""
        matching = [worker for worker in self._listed if _matches(worker, self._words)]
        matching.sort(key=lambda worker: worker.worker)
        matching.sort(key=pool_text.SORT_KEYS[self._sort], reverse=self._reverse)
        return matching

    @property
    def _listed(self) -> list[WorkerInfo]:
        """Workers that are shown if there is no filter."""
        snapshot = self._snapshot
        return snapshot.worker_ids if self._show_all else [*snapshot.workers, *snapshot.unknown]

    def _fill(self, table: WorkerTable) -> None:
        """Write the workers into *table*: only the cells that changed, or everything if rows or columns changed."""
        width = self.size.width - _SCROLL_BAR
        # the two columns that a narrow terminal leaves out are among the details
        hidden, gap = (
            ((), pool_text.GAP) if self.size.width >= pool_text.WIDE else (("ns", "back"), pool_text.COMPACT_GAP)
        )
        columns, cells = pool_text.worker_rows(self._shown, self._snapshot.info, hidden=hidden, short_numbers=True)
        titled = [replace(column, title=self._title(column)) for column in columns]
        widths = column_widths(titled, cells, width, gap)
        head = [(column_width, column.title) for column_width, column in zip(widths, titled, strict=True)]

        gaps = [gap] * (len(columns) - 1) + [0]

        def cell(segment: Segment, at: int) -> Text:
            text, style = pad(segment, columns[at], widths[at])
            return Text(text + " " * gaps[at], STYLES[style])

        if head == self._head and len(cells) == len(self._cells):
            for row, (new, old) in enumerate(zip(cells, self._cells, strict=True)):
                for at, segment in enumerate(new):
                    if segment != old[at]:
                        table.update_cell(str(row), columns[at].title, cell(segment, at))
        else:
            at_row, scroll_x, scroll_y = table.cursor_row, table.scroll_x, table.scroll_y
            table.clear(columns=True)
            for at, column in enumerate(columns):
                table.add_column(cell((head[at][1], "strong"), at), key=column.title, width=widths[at] + gaps[at])
            for row, new in enumerate(cells):
                table.add_row(*(cell(segment, at) for at, segment in enumerate(new)), key=str(row))
            table.move_cursor(row=at_row, scroll=False)
            table.scroll_to(scroll_x, scroll_y, animate=False, force=True)
        self._head, self._cells = head, cells

    def _title(self, column: Column) -> str:
        """Return the title of a column with room for the arrow of the one that is sorted by."""
        arrow = " " if column.title != self._sort else "▲" if self._reverse else "▼"
        return arrow + column.title if column.right else column.title + arrow

    def _show_status(self, matching: int) -> None:
        words = f"  filter: {printable(' '.join(self._words))}" if self._words else ""
        first = f", the first {MAX_ROWS:,} are shown" if matching > MAX_ROWS else ""
        count = f"{matching:,} {'worker' if matching == 1 else 'workers'}"
        if self._words:
            count = f"{matching:,} of {len(self._listed):,} workers"
        order = f"  by {self._sort}{', reversed' if self._reverse else ''}"
        ended = "  with worker ids without a lease" if self._show_all else ""
        self.query_one("#status", Static).update(Text(f"{count}{first}{order}{ended}{words}"))

    # --- keys --------------------------------------------------------------------------------------

    def action_exit_with(self, code: int) -> None:
        """Close the view; run() returns *code*."""
        self.exit(code)

    def action_sort(self, step: int) -> None:
        """Sort by the next column, or by the one before."""
        names = list(pool_text.SORT_KEYS)
        self._sort_by(names[(names.index(self._sort) + step) % len(names)], reverse=False)

    def action_reverse(self) -> None:
        """Reverse the order."""
        self._sort_by(self._sort, reverse=not self._reverse)

    def on_data_table_header_selected(self, event: DataTable.HeaderSelected) -> None:
        name = event.column_key.value or self._sort
        self._sort_by(name, reverse=name == self._sort and not self._reverse)

    def _sort_by(self, name: str, *, reverse: bool) -> None:
        self._sort, self._reverse = name, reverse
        self._show()
        self.query_one(WorkerTable).move_cursor(row=0)

    def action_filter(self) -> None:
        """Open the line in which the filter is typed."""
        line = self.query_one("#filter", Input)
        line.display = True
        line.focus()

    def action_clear_filter(self) -> None:
        """Show all workers again."""
        line = self.query_one("#filter", Input)
        line.value = ""
        line.display = False
        self.query_one(WorkerTable).focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        self._words = event.value.lower().split()
        self._show()

    def on_input_submitted(self) -> None:
        self.query_one("#filter", Input).display = False
        self.query_one(WorkerTable).focus()

    def action_toggle_all(self) -> None:
        """Show or hide worker ids without a lease."""
        self._show_all = not self._show_all
        self.action_read()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        if event.cursor_row < len(self._shown):
            self.push_screen(Details(self._shown[event.cursor_row], self._snapshot.info, self._time_text))


def _matches(worker: WorkerInfo, words: list[str]) -> bool:
    text = f"{worker.worker} {worker.host} {worker.pid} {worker.label} {worker.state}".lower()
    return all(word in text for word in words)
