#!/usr/bin/env python3
"""Write the address of the repository into pyproject.toml and README.md, so that a package index shows links that work.

    scripts/release_urls.py https://forge.example/owner/snowredis v1.2.3

The release workflow runs it before it builds. The files of the repository name no address, so copies need no change.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def project_urls(repository: str, tag: str) -> str:
    """Return the table of links for pyproject.toml."""
    pages = f"{repository}/blob/{tag}"
    links = {
        "Source": repository,
        "Documentation": f"{pages}/docs/index.md",
        "Changelog": f"{pages}/CHANGELOG.md",
        "Issues": f"{repository}/issues",
    }
    return "[project.urls]\n" + "".join(f'{name} = "{url}"\n' for name, url in links.items()) + "\n"


def absolute_links(readme: str, repository: str, tag: str) -> str:
    """Return *readme* with the links to files of the repository as addresses; pictures as what they show."""

    def absolute(match: re.Match[str]) -> str:
        kind = "raw" if match[1].startswith("!") else "blob"
        return f"{match[1]}({repository}/{kind}/{tag}/{match[2]})"

    return re.sub(r"(!?\[[^\]]*\])\((?!https?://|#)([^)]+)\)", absolute, readme)


def main(repository: str, tag: str, root: Path = ROOT) -> None:
    """Change both files in *root*."""
    project, readme = root / "pyproject.toml", root / "README.md"
    text = project.read_text("utf-8")
    if "[project.urls]" in text:
        raise SystemExit("pyproject.toml has links already: nothing was changed")
    project.write_text(
        text.replace("[project.scripts]", project_urls(repository, tag) + "[project.scripts]", 1), "utf-8"
    )
    readme.write_text(absolute_links(readme.read_text("utf-8"), repository, tag), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
