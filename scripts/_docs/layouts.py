"""The presets of layouts."""

from __future__ import annotations

from scripts._docs.tables import table
from snowredis.core.layout import Layout
from snowredis.core.presets import layouts, preset_source


def presets() -> str:
    """Return the table of the presets, and below it where each comes from."""
    titles = ("preset", "bits", "tick", "until", "workers", "ids a second")
    rows = ((f"`{name}`", *_cells(layout)) for name, layout in layouts.items())
    sources = (f"- `{name}`: {preset_source(name)}" for name in layouts)
    return f"{table(titles, rows)}\n\n" + "\n".join(sources)


def _cells(layout: Layout) -> tuple[str, ...]:
    bits = "/".join(str(width) for _, width in layout.fields)
    end = f"{layout.end:%Y}" if layout.end else "past 9999"
    return bits, f"{layout.tick_ms:,} ms", end, f"{layout.workers:,}", f"{layout.ids_per_second:,.0f}"
