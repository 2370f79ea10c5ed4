"""Draw the bits of an id: a box for each field, its name and value below.

An id and a layout in, lines out; 80 columns are enough for nearly any layout.
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
_NO_LINES = str.maketrans("┌┬┐│└┴┘─", "+++|+++-")


def bits_of(layout: Layout, an_id: int) -> dict[str, str]:
    """Every field that has bits, from the top, as a string of 0 and 1."""
    text, at, found = f"{an_id:0{layout.total_bits}b}", 0, {}
    for name, bits in layout.fields:
        if bits:
            found[name] = text[at : at + bits]
            at += bits
    return found


def draw(layout: Layout, an_id: int) -> list[Line]:
    """The 64 bits of an id of *layout* in boxes."""
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
    return [[(text.translate(_NO_LINES), style) for text, style in line] for line in lines]


def _labels(labels: list[tuple[int, str, str]]) -> list[Line]:
    """Labels below what they belong to, in as few rows as keep them apart; a stroke leads to the lower ones.

    From right to left, so that a label has to care only for what stands to its right.
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
