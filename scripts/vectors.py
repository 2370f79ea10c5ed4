#!/usr/bin/env python3
"""Write docs/reference/vectors.json: ids with their fields and texts, for decoders in any language to be tested with.

example:
  scripts/vectors.py       # after a change of layouts or text forms; the same every time
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from snowredis.core.layout import Layout, layout_spec
from snowredis.core.presets import layouts, resolve_layout
from snowredis.core.text import FORMS, encode

PLACE = Path(__file__).resolve().parents[1] / "docs/reference/vectors.json"
IDS_OF_A_LAYOUT = 8
# datetime, and so the friendly form, ends with the year 9999
LAST_MS = 253_402_300_799_000
SPECS = [*layouts, "41/6/2/8/6", "63/0/0/0/0;epoch_ms=0", "20/0/0/3/40;tick_ms=37;epoch_ms=7"]
SPECS += ["41/region:2,business:4/2/6/6;gene_bits=2", "41/0/2/10/6;gene_bits=4"]
KEYS: list[int | str] = [0, 1, 42, 10**18, -7, "u-42", "\N{LATIN SMALL LETTER E WITH ACUTE}", ""]
BAD_TEXTS = [
    ("decimal", "9223372036854775808"), ("decimal", "-1"), ("decimal", ""), ("decimal", "1 2"), ("decimal", "٣"),
    ("base62", "AzL8n0Y58m8"), ("base62", "000000000000"), ("base62", "0_"), ("base62", "é"),
    ("hex", "8000000000000000"), ("hex", "0x"),
    ("friendly", "20260230T000000000Z_b0_w0000_s0000"), ("friendly", "20260101T000000000Z_b4_w0000_s0000"),
    ("friendly", "20241231T235959999Z_b0_w0000_s0000"), ("friendly", "20260101T000000000Z_w0000_s0000"),
]  # fmt: skip
BAD_LAYOUTS = [
    "41/0/2/10/11",
    "0/0/2/10/10",
    "41/0/7/6/9",
    "30/0/0/23/10",
    "41/0/2/10",
    "41/0/2/10/x",
    "41/0/2/10/6;gene_bits=17",
    "41/a:1,a:1/2/6/8",
    "41/worker:2/2/6/8",
    "nameless",
]


def vectors() -> dict[str, Any]:
    """Return the vectors, as the file has them."""
    rng = random.Random(0)
    return {
        "layouts": [_of_layout(name, resolve_layout(name), rng) for name in SPECS],
        # the key, and its gene of 16 bits; fewer are the last ones of these
        "genes": [[key, Layout(sequence_bits=0, worker_bits=0, gene_bits=16).gene_of(key)] for key in KEYS],
        "bad_layouts": BAD_LAYOUTS,
        "bad_texts": [{"form": form, "text": text} for form, text in BAD_TEXTS],
    }


def _of_layout(name: str, layout: Layout, rng: random.Random) -> dict[str, Any]:
    last = min(layout.max_tick, layout.tick_at(LAST_MS))
    rest = layout.timestamp_shift
    ids = [0, (last + 1 << rest) - 1]
    ids += [rng.randrange(last + 1) << rest | rng.getrandbits(rest) for _ in range(IDS_OF_A_LAYOUT - 2)]
    return {
        "layout": name,
        "spec": layout_spec(layout),
        "ids": [_of_id(layout, an_id) for an_id in ids],
        "too_large": str(1 << layout.total_bits),
    }


def _of_id(layout: Layout, an_id: int) -> dict[str, Any]:
    parts = layout.decode(an_id)
    return {
        "id": str(an_id),
        "timestamp_ms": parts.timestamp_ms,
        "tick": str(parts.tick),
        **{name: str(getattr(parts, name)) for name in ("datacenter", "backup", "worker", "sequence", "gene")},
        **({"fields": parts.fields} if parts.fields else {}),
        "texts": {form: encode(an_id, form, layout=layout) for form in FORMS},
    }


def main() -> int:
    """Write the file. Returns the exit code."""
    PLACE.write_text(text_of(vectors()), "utf-8")
    return 0


def text_of(value: dict[str, Any]) -> str:
    """Return the text of the file: one id a line."""
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.exit(main())
