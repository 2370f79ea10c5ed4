"""The release: links for a package index, the tools that build it, and the extras that are named anywhere."""

import ast
import re
import shutil
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from scripts.release_urls import main
from scripts.try_extras import IMPORTS
from tests.support.programs import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
EXTRAS = set(PROJECT["project"]["optional-dependencies"])


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


def jobs_of(workflow: str) -> dict[str, str]:
    """Return the text of each job."""
    text = (ROOT / ".github" / "workflows" / workflow).read_text("utf-8").partition("\njobs:\n")[2]
    _, *parts = re.split(r"^  (\w+):\n", text, flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def test_actions_are_pinned_by_commit() -> None:
    used = [
        line.partition("uses: ")[2]
        for workflow in (ROOT / ".github" / "workflows").glob("*.yml")
        for line in workflow.read_text("utf-8").splitlines()
        if "uses: " in line
    ]
    assert len(used) > 10
    assert [each for each in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", each)] == []


def test_what_builds_a_release_is_pinned_and_takes_its_time_from_the_commit() -> None:
    lines = (ROOT / ".github" / "build-tools.txt").read_text("utf-8").splitlines()
    pinned = dict(line.split("==") for line in lines if not line.startswith("#"))
    assert {re.split(r"[<>=]", each)[0] for each in PROJECT["build-system"]["requires"]} <= pinned.keys()
    jobs = jobs_of("release.yml")
    for job in ("wheels", "pure"):
        assert 'echo "SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)" >> "$GITHUB_ENV"' in jobs[job]
        assert re.search(r"PIP_CONSTRAINT[:=].*/\.github/build-tools\.txt", jobs[job])
    [installed] = re.findall(r"pip install (build .*)", jobs["pure"])
    assert set(installed.split()) <= pinned.keys()


def test_the_bill_of_materials_is_attached_to_the_release() -> None:
    jobs = jobs_of("release.yml")
    assert re.search(r"name: sbom\n +path: sbom\.cdx\.json", jobs["pure"])
    # all artifacts, into one folder
    assert "pattern:" not in jobs["attach"]
    assert 'gh release create "$GITHUB_REF_NAME" files/*' in jobs["attach"]


# --- extras ---------------------------------------------------------------------------------------------

# snowredis[web], and the same from a checkout or a wheel: '.[web]', CHECKOUT[web], snowredis-….whl[web]
ASKED_FOR = re.compile(r"(?:snowredis|CHECKOUT|\.whl|'\.)\[([a-z][a-z,]*)\]")


def texts() -> Iterator[tuple[str, str]]:
    for folder in ("docs", "examples", "scripts", "snowredis", "tests"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in {".md", ".py", ".sh", ".yml", ".txt"}:
                yield str(path.relative_to(ROOT)), path.read_text("utf-8")
    yield from ((name, (ROOT / name).read_text("utf-8")) for name in ("pyproject.toml", "README.md"))


def unknown_extras(text: str) -> set[str]:
    return {name for names in ASKED_FOR.findall(text) for name in names.split(",")} - EXTRAS


def test_every_extra_that_is_named_exists() -> None:
    assert {where: unknown_extras(text) for where, text in texts() if unknown_extras(text)} == {}


def modules_in(statement: str) -> set[str]:
    nodes = list(ast.walk(ast.parse(statement)))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return plain | {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}


def test_each_extra_is_tried_with_modules_that_exist() -> None:
    assert set(IMPORTS) == EXTRAS
    modules = {extra: modules_in(statement) for extra, statement in IMPORTS.items()}
    assert {(extra, name) for extra, names in modules.items() for name in names if find_spec(name) is None} == set()
