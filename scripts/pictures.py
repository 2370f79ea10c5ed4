#!/usr/bin/env python3
"""Make the pictures of the documentation from the real programs.

    scripts/pictures.py                 # all of them, in about two minutes
    scripts/pictures.py demo            # docs/images/demo.svg: `snowredis demo`
    scripts/pictures.py dashboard       # docs/images/dashboard.png: `snowredis serve` with a fleet of 16 processes
    scripts/pictures.py diagrams        # a picture of each new diagram in mermaid, drawn by mermaid

Needs the group dev (pip install -e . --group dev) and a redis-server; dashboard and diagrams need Chromium, diagrams
also npm and the network.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import pty
import re
import subprocess
import sys
import tempfile
import termios
import time
from io import BytesIO, StringIO
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts._docs.diagrams import IMAGES, diagrams_in, picture_of
from scripts._docs.links import all_pages
from scripts.bench_serve import running
from tests.support.ports import free_port
from tests.support.servers import redis_server
from tests.web.chromium import chromium

MERMAID = "mermaid@11"
# a forge shows pictures without a choice of size, and a checkout should stay small
MAX_BYTES = 150_000
DEMO_COLUMNS, DEMO_LINES = 108, 40
DASHBOARD_SIZE = (1280, 860)
FLEET, DASHBOARD_S, DASHBOARD_TTL_S = 16, 45.0, 12.0


def main() -> int:
    """Make the pictures that the command line names; return the exit code."""
    kinds = {"demo": demo, "dashboard": dashboard, "diagrams": diagrams}
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"{', '.join(kinds)} (default: all)")
    chosen = parser.parse_args().kinds or list(kinds)
    if unknown := set(chosen) - kinds.keys():
        parser.error(f"unknown: {', '.join(unknown)}; the kinds are {', '.join(kinds)}")
    for kind in chosen:
        kinds[kind]()
    return 0


def _write(path: Path, content: bytes) -> None:
    if len(content) > MAX_BYTES:
        raise SystemExit(f"pictures.py: {path.name} has {len(content):,} bytes; {MAX_BYTES:,} are allowed")
    path.write_bytes(content)
    print(f"{path} {len(content) / 1000:.0f} KB")


def demo() -> None:
    """Run `snowredis demo` in a terminal, and draw what it prints."""
    from rich.console import Console
    from rich.text import Text

    output = re.sub(r"\r|\x1b\[[KJ]", "", _in_terminal([sys.executable, "-m", "snowredis", "demo"]))
    console = Console(record=True, width=DEMO_COLUMNS, file=StringIO(), force_terminal=True)
    console.print(Text.from_ansi(f"$ snowredis demo\n\n{output}".rstrip()))
    svg = console.export_svg(title="snowredis demo")
    # fonts of another host, which a picture must not load
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    svg = svg.replace("Fira Code,", "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono',")
    _write(IMAGES / "demo.svg", svg.encode())


def _in_terminal(command: list[str]) -> str:
    """Run *command* in a terminal of its own, and return all that it wrote there."""
    others = {name: text for name, text in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    environment = {**others, "TERM": "xterm-256color"}
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (DEMO_LINES, DEMO_COLUMNS))
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    output = b""
    try:
        while part := os.read(ours, 1 << 16):
            output += part
    except OSError:
        # Linux reports the end of a terminal as an error
        pass
    finally:
        os.close(ours)
    if process.wait():
        raise SystemExit(f"pictures.py: {' '.join(command)} failed: {output.decode()}")
    return output.decode()


def dashboard() -> None:
    """Run `snowredis serve` and a fleet, and take a screenshot of the page."""
    from snowredis.snowflake.protocol.pool_config import PoolConfig
    from snowredis.worker_pool import WorkerPool

    spawn = multiprocessing.get_context("spawn")
    with contextlib.ExitStack() as stack:
        directory, profile = (
            Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="snowredis-", ignore_cleanup_errors=True)))
            for _ in range(2)
        )
        server = stack.enter_context(redis_server(directory))
        config = PoolConfig(name="orders", ttl_ms=round(DASHBOARD_TTL_S * 1000))
        WorkerPool(server.url, "orders").create(config)
        fleet = [spawn.Process(target=_make_ids, args=(server.url, n), daemon=True) for n in range(FLEET)]
        for process in fleet:
            process.start()
            stack.callback(process.kill)
        port = free_port()
        command = ("-m", "snowredis", "serve", "--pool", "orders", "--port", str(port))
        url, _ = stack.enter_context(
            running(*command, port=port, ready="/readyz", directory=str(directory), SNOWREDIS_URL=server.url)
        )
        page = stack.enter_context(chromium(profile))
        page.size(*DASHBOARD_SIZE)
        page.go(url)
        time.sleep(DASHBOARD_S)
        # so that the picture shows one whose lease ended, and one that is late
        fleet[5].kill()
        time.sleep(DASHBOARD_TTL_S - 3)
        fleet[11].kill()
        time.sleep(DASHBOARD_TTL_S / 2)
        shot = directory / "dashboard.png"
        page.screenshot(shot)
        _write(IMAGES / "dashboard.png", _smaller(shot.read_bytes()))


def _make_ids(url: str, number: int) -> None:
    """Make ids in a process of the fleet, at a rate of its own that goes up and down."""
    import math

    import snowredis

    label = ("checkout", "cart", "search", "invoices")[number % 4]
    ids = snowredis.connect(url, pool="orders", ttl=DASHBOARD_TTL_S, label=f"{label}-{number // 4}")
    while True:
        rate = 400 * (1.5 + math.sin(time.monotonic() / 9 + number / 20))
        ids.next_ids(max(1, round(rate / 10)))
        time.sleep(0.1)


def _smaller(png: bytes) -> bytes:
    """Return a picture in 128 colors, which are enough for a page."""
    from PIL import Image

    output = BytesIO()
    Image.open(BytesIO(png)).convert("RGB").quantize(128).save(output, "PNG", optimize=True)
    return output.getvalue()


def diagrams() -> None:
    """Draw each diagram that has no picture, and remove pictures whose diagram is gone."""
    sources = [diagram for page in all_pages() for diagram in diagrams_in(page.read_text("utf-8"))]
    wanted = {picture_of(source): source for source in sources}
    for path in set(IMAGES.glob("diagram-*.svg")) - wanted.keys():
        path.unlink()
    missing = {path: source for path, source in wanted.items() if not path.exists()}
    if not missing:
        return
    with tempfile.TemporaryDirectory(prefix="snowredis-") as name, chromium(Path(name)) as page:
        subprocess.run(["npm", "install", "--silent", "--prefix", name, MERMAID], check=True)
        html = Path(name) / "page.html"
        html.write_text('<!doctype html><body><script src="node_modules/mermaid/dist/mermaid.min.js"></script>')
        page.go(html.as_uri())
        page.wait("window.mermaid !== undefined")
        # no HTML inside the SVG, which viewers of pictures do not show
        options = {"startOnLoad": False, "theme": "neutral", "htmlLabels": False}
        options |= {"flowchart": {"htmlLabels": False}, "deterministicIds": True}
        page.evaluate(f"mermaid.initialize({json.dumps(options)})")
        for path, source in missing.items():
            drawn = page.evaluate(f"mermaid.render('d', {json.dumps(source)}).then(result => result.svg)")
            _write(path, drawn.encode())


if __name__ == "__main__":
    sys.exit(main())
