"""Diagram of the bits of an id: the bits of each field side by side, its name and value below.

80 columns are enough for nearly any layout.
"""

from __future__ import annotations

from snowredis.cli.output import Line, encodable
from snowredis.core.layout import ID_BITS, Layout

_STYLES = {
    "timestamp": "note",
    "datacenter": "warn",
    "backup": "warn",
    "worker": "good",
    "sequence": "strong",
}
_ASCII = str.maketrans("┌┬┐│└┴┘─", "+++|+++-")


def bits_of(layout: Layout, an_id: int) -> dict[str, str]:
    """Return the bits of every field that has some, the highest first, as strings of 0 and 1."""
    text, at, fields = f"{an_id:0{layout.total_bits}b}", 0, dict[str, str]()
    for name, bits in layout.fields:
        if bits:
            fields[name] = text[at : at + bits]
            at += bits
    return fields


def draw(layout: Layout, an_id: int) -> list[Line]:
    """Return the diagram of the 64 bits of an id of *layout*."""
    fields = bits_of(layout, an_id)
    above = "0" * (ID_BITS + 1 - layout.total_bits)
    cells = [("always 0", above, "dim"), *((name, bits, _STYLES[name]) for name, bits in fields.items())]
    values = [""] + [f" {int(bits, 2)}" for bits in fields.values()]
    rules = ["─" * len(bits) for _, bits, _ in cells]
    middle: Line = [("│", "dim")]
    starts, column = [], 1
    for _, bits, style in cells:
        middle += [(bits, style), ("│", "dim")]
        starts.append(column)
        column += len(bits) + 1
    labels = [
        (start, name + value, style)
        for start, (name, _, style), value in zip(starts, cells, values, strict=True)
    ]
    lines: list[Line] = [[(f"┌{'┬'.join(rules)}┐", "dim")], middle, [(f"└{'┴'.join(rules)}┘", "dim")]]
    lines += _labels(labels)
    if encodable("┌─│"):
        return lines
    return [[(text.translate(_ASCII), style) for text, style in line] for line in lines]


def _labels(labels: list[tuple[int, str, str]]) -> list[Line]:
    """Put each label (start, text, style) below its field, in as few rows as possible; strokes lead to lower rows.

    Labels are placed from right to left, so that each needs to fit only before those to its right.
    """
    rows: list[list[tuple[int, str, str]]] = []
    for start, text, style in reversed(labels):
        end = start + len(text) + 2
        at = next((at for at, row in enumerate(rows) if end <= row[-1][0]), len(rows))
        if at == len(rows):
            rows.append([])
        rows[at].append((start, text, style))
        for row in rows[:at]:
            row.append((start, "│", "dim"))
    lines: list[Line] = []
    for row in rows:
        line: Line = []
        column = 0
        for start, text, style in reversed(row):
            line += [(" " * (start - column), ""), (text, style)]
            column = start + len(text)
        lines.append(line)
    return lines
