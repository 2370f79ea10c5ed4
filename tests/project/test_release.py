"""What the release workflow does to the files: links for a package index."""

from __future__ import annotations

import re
import shutil
import tomllib
from pathlib import Path

from scripts.release_urls import main

ROOT = Path(__file__).parents[2]


def test_a_release_has_links_that_work_outside_of_the_repository(tmp_path: Path) -> None:
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, tmp_path)
    main("https://forge.example/me/snowredis", "v1.2.3", tmp_path)
    urls = tomllib.loads((tmp_path / "pyproject.toml").read_text("utf-8"))["project"]["urls"]
    assert urls["Changelog"] == "https://forge.example/me/snowredis/blob/v1.2.3/CHANGELOG.md"
    readme = (tmp_path / "README.md").read_text("utf-8")
    links = re.findall(r"\]\(([^)]+)\)", readme)
    assert links
    assert [link for link in links if not link.startswith(("https://", "#"))] == []
    assert "https://forge.example/me/snowredis/raw/v1.2.3/docs/images/demo.svg" in links
