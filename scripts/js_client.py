#!/usr/bin/env python3
"""Write examples/client/scripts.mjs: the Lua scripts that the client in JavaScript sends, so that its folder is whole.

example:
  scripts/js_client.py       # after a change of the scripts of a pool
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from snowredis.snowflake.protocol.redis_store import load

PLACE = Path(__file__).resolve().parents[1] / "examples/client/scripts.mjs"
NAMES = ("claim", "renew", "release")


def text_of() -> str:
    """Return the text of the file: what the scripts have in common stands in it once."""
    sources = [load(name).source for name in NAMES]
    common = sources[0][: next(i for i, each in enumerate(zip(*sources, strict=False)) if len(set(each)) > 1)]
    lines = [
        f"// Written by {Path(__file__).name} from the Lua scripts of snowredis.",
        f"const common = {_lines(common)};",
    ]
    lines += (
        f"export const {name} = common + {_lines(text[len(common) :])};"
        for name, text in zip(NAMES, sources, strict=True)
    )
    return "\n".join(lines) + "\n"


def _lines(text: str) -> str:
    parts = (json.dumps(line, ensure_ascii=False) for line in text.split("\n"))
    return "[\n" + ",\n".join(parts) + '\n].join("\\n")'


def main() -> int:
    """Write the file. Returns the exit code."""
    PLACE.write_text(text_of(), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
