#!/usr/bin/env python3
"""Build the documentation as a site, with warnings as errors; check its links, and its width on a phone.

    scripts/docs.py                    # build/docs/index.html
    scripts/docs.py --write            # write the generated parts of the pages again, and build nothing
    scripts/docs.py --open             # then show it in a browser
    scripts/docs.py --external         # also check the links to other hosts, which needs the network

Needs the group docs, and --write the group dev: pip install -e . --group dev. Exit code 1 if something is wrong.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import webbrowser
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

try:
    from sphinx.cmd.build import main as sphinx_build

    from scripts._docs import diagrams, links, openapi, phone
    from scripts._docs.generated import written
except ImportError as error:
    sys.exit(f"docs.py: {error.name} is not installed. Install it with: pip install -e . --group docs")

SITE = ROOT / "build/docs"
# what a browser loads by itself; links, which people follow, may lead anywhere
_LOADED = re.compile(r"<(?:script|img|iframe|source|link)\b[^>]*?(?:src|href)=\"([^\"]+)\"")


def main() -> int:
    """Run the steps; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--external", action="store_true", help="also check links to other hosts")
    parser.add_argument(
        "--write", action="store_true", help="write the generated parts of the pages, and build nothing"
    )
    parser.add_argument("--open", action="store_true", help="show the site in a browser")
    args = parser.parse_args()

    if args.write:
        for page in links.all_pages():
            page.write_text(written(page.read_text("utf-8")), "utf-8")
        openapi.FILE.write_text(openapi.description(), "utf-8")
        return 0
    errors = [*links.broken_links(links.all_pages()), *_diagrams_without_picture()]
    # pages that are gone must not stay in the site
    shutil.rmtree(SITE, ignore_errors=True)
    # -E: a change of conf.py or of a picture, which Sphinx does not watch
    failed = sphinx_build(["-b", "html", "-E", "-n", "-W", "--keep-going", "-q", str(ROOT / "docs"), str(SITE)])
    errors += _loaded_from_elsewhere()
    errors += _too_wide()
    if args.external:
        failed |= sphinx_build(["-b", "linkcheck", "-q", str(ROOT / "docs"), str(ROOT / "build/linkcheck")])
    for line in errors:
        print(f"docs.py: {line}", file=sys.stderr)
    if errors or failed:
        return 1
    print(f"{len(list(SITE.rglob('*.html')))} pages: {SITE / 'index.html'}")
    if args.open:
        webbrowser.open((SITE / "index.html").as_uri())
    return 0


def _diagrams_without_picture() -> Iterator[str]:
    for page in links.all_pages():
        for diagram in diagrams.diagrams_in(page.read_text("utf-8")):
            if not diagrams.picture_of(diagram).exists():
                yield f"{page.relative_to(ROOT)}: a diagram has no picture; run: scripts/pictures.py diagrams"


def _loaded_from_elsewhere() -> Iterator[str]:
    for page in SITE.rglob("*.html"):
        for url in _LOADED.findall(page.read_text("utf-8")):
            if "://" in url or url.startswith("//"):
                yield f"{page.relative_to(SITE)} loads {url}; pages must not load anything from other hosts"


def _too_wide() -> Iterator[str]:
    if not phone.has_browser():
        print("docs.py: no Chromium, so the pages were not opened at the width of a phone", file=sys.stderr)
        return
    yield from phone.too_wide(SITE)


if __name__ == "__main__":
    sys.exit(main())
