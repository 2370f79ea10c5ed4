"""The documentation as a whole: links, named files, the first page, and that the reference is complete.

scripts/docs.py builds the site and fails at any warning.
"""

import hashlib
import inspect
import itertools
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime

import pytest

import snowredis
from snowredis import errors
from snowredis.kinds.lookup import GROUP
from tests.support.pages import PAGES, TRANSLATED, blocks_of
from tests.support.programs import ROOT

pytest.importorskip("markdown_it")

from scripts._docs import diagrams, links, openapi
from scripts._docs.generated import GENERATED, parts_of, written

REFERENCE = ROOT / "docs/reference"


def test_every_link_leads_somewhere() -> None:
    assert list(links.broken_links([ROOT / page for page in (*PAGES, "CHANGELOG.md")])) == []


def test_the_first_page_links_to_every_page() -> None:
    first, readme = ROOT / "docs/index.md", ROOT / "README.md"
    linked = {link.file for link in links.links_in(first)}
    english = {path for name, path in PAGES.items() if name not in TRANSLATED}
    assert english - linked <= {first, readme}
    assert first in {link.file for link in links.links_in(readme)}


def torn_tables(text: str) -> list[str]:
    """Return the rows that follow an empty line in a table: a page shows them as text with bars."""
    parts = re.split(r"\n(?:[ \t]*\n)+", f"{text}\n")
    pairs = itertools.pairwise(parts)
    return [
        after.partition("\n")[0]
        for before, after in pairs
        if before.rpartition("\n")[2].startswith("|")
        and after.startswith("|")
        and not re.match(r"[^\n]*\n\|[-:| ]+\|(\n|$)", after)
    ]


def test_no_table_is_torn() -> None:
    assert {page: torn for page, path in PAGES.items() if (torn := torn_tables(path.read_text("utf-8")))} == {}


def test_every_file_that_a_page_names_exists() -> None:
    for page, path in PAGES.items():
        text = re.sub(r"https?://\S+", "", path.read_text("utf-8"))
        for name in re.findall(r"\b(?:scripts|snowredis|examples|docs|tests)/[\w./-]*\w", text):
            assert (ROOT / name).exists(), (page, name)


@pytest.mark.parametrize("page", ["docs/contributing.md", "docs/explanation/architecture.md"])
def test_the_files_and_names_that_a_page_says_to_change_are_there(page: str) -> None:
    text = " ".join(PAGES[page].read_text("utf-8").split())
    files = [path for folder in ("snowredis", "tests", "scripts") for path in (ROOT / folder).rglob("*.*")]

    def has(file: str, name: str = "") -> bool:
        paths = [path for path in files if str(path).endswith(f"/{file}")]
        return any(re.search(rf"\b{name}\b", path.read_text("utf-8")) for path in paths)

    missing = {file for file in re.findall(r"`([\w/]+\.(?:py|lua|js|c|tla))`", text) if not has(file)}
    # "`a`, `b()` and `c` in `folder/file.lua`"
    for names, file in re.findall(r"((?:`\w+(?:\(\))?`(?:, | and | ))+)(?:in|of) `([\w/]+\.(?:py|lua))`", text):
        missing |= {(file, name) for name in re.findall(r"`(\w+)", names) if not has(file, name)}
    assert not missing, "say where it is now"


def test_every_diagram_has_a_picture() -> None:
    for page, path in PAGES.items():
        for diagram in diagrams.diagrams_in(path.read_text("utf-8")):
            assert diagrams.picture_of(diagram).exists(), f"{page}: run scripts/pictures.py diagrams"


def test_every_generated_part_is_on_one_page() -> None:
    names = [name for path in PAGES.values() for name in parts_of(path.read_text("utf-8"))]
    assert sorted({*names}) == sorted(GENERATED)
    assert [name for name in {*names} - {"api"} if names.count(name) > 1] == []


@pytest.mark.parametrize("page", [page for page, path in PAGES.items() if parts_of(path.read_text("utf-8"))])
def test_the_generated_parts_of_a_page_are_those_of_the_code(page: str) -> None:
    text = PAGES[page].read_text("utf-8")
    assert written(text) == text, "run: scripts/docs.py --write"


def test_the_description_of_the_service_is_that_of_the_code() -> None:
    assert openapi.FILE.read_text("utf-8") == openapi.description(), "run: scripts/docs.py --write"


def test_the_api_pages_name_every_public_name() -> None:
    page = "".join(path.read_text("utf-8") for path in REFERENCE.glob("api*.md"))
    modules = {"__version__", "testing", "embedded", "readers"}
    for name in set(snowredis.__all__) - set(errors.__all__) - modules:
        assert re.search(rf"^### `{name}`$", page, re.MULTILINE), name
    integrations = ROOT / "snowredis/integrations"
    for path in integrations.iterdir():
        if path.stem not in ("__init__", "__pycache__", "pyinstaller"):
            assert f"snowredis.integrations.{path.stem}" in page, path.stem


def test_every_public_name_can_be_had_and_the_help_of_the_package_begins_with_what_is_called() -> None:
    """pydoc shows classes before functions, so the docstring names the functions."""
    text = inspect.cleandoc(snowredis.__doc__ or "")
    public = {name: getattr(snowredis, name) for name in snowredis.__all__}
    functions = [name for name, value in public.items() if inspect.isfunction(value)]
    assert len(functions) > 10
    assert [name for name in functions if f"{name}()" not in text] == []


def test_the_api_page_names_the_entry_points_of_kinds() -> None:
    assert f"the group `{GROUP}`" in (REFERENCE / "api.md").read_text("utf-8")


def error_tree(kind: type[BaseException] = snowredis.SnowredisError) -> Iterator[type[BaseException]]:
    yield kind
    for child in kind.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from error_tree(child)


def test_the_page_of_errors_describes_every_error_in_the_order_of_the_tree() -> None:
    page = (REFERENCE / "errors.md").read_text("utf-8")
    names = [kind.__name__ for kind in error_tree()]
    # as the docstring of errors.py draws it
    drawn = [name for name in re.findall(r"\b[A-Z]\w+", str(errors.__doc__)) if name in names]
    assert re.findall(r"^## `(\w+)`$", page, re.MULTILINE) == drawn
    assert re.findall(r"^\| \[`(\w+)`\]", page, re.MULTILINE) == drawn[1:]
    assert set(drawn) == set(names) == set(errors.__all__)


@pytest.mark.parametrize("kind", list(error_tree()), ids=lambda kind: kind.__name__)
def test_the_section_of_an_error_says_whether_to_try_again_and_lists_its_values(kind: type[BaseException]) -> None:
    page = (REFERENCE / "errors.md").read_text("utf-8")
    section = page.partition(f"\n## `{kind.__name__}`\n")[2].partition("\n## ")[0]
    if kind is snowredis.SnowredisError:
        return
    row = re.search(rf"^\| \[`{kind.__name__}`\].*", page, re.MULTILINE)
    assert row is not None
    for text in (row[0].split(" | ")[2], section.partition("**Try again**: ")[2]):
        assert text
        assert issubclass(kind, snowredis.SnowredisError)
        assert text.startswith("no") is not kind.retry
    inherited = re.search(r"as `(\w+)`", section)
    text = section + (page.partition(f"\n## `{inherited[1]}`\n")[2].partition("\n## ")[0] if inherited else "")
    if kind.__init__ is not Exception.__init__ and inspect.isfunction(kind.__init__):
        for value in list(inspect.signature(kind).parameters):
            assert f"`{value}`" in text, value


def code_of(page: str) -> list[str]:
    """Return the fenced blocks of a page, without the comments in them, which are translated."""
    return [re.sub(r"(^|  +)#.*$", "", block.text, flags=re.MULTILINE) for block in blocks_of(page)]


def original_of(page: str) -> str:
    return "README.md" if page.endswith("README.md") else page.replace("docs/zh/", "docs/")


@pytest.mark.parametrize("page", TRANSLATED)
def test_a_translation_has_the_code_of_the_original(page: str) -> None:
    assert code_of(page) == code_of(original_of(page))


# a translation -> until when it may follow an older English page
MAY_LAG: dict[str, date] = {}


@pytest.mark.parametrize("page", TRANSLATED)
def test_a_translation_follows_the_english_page_as_it_is_now(page: str) -> None:
    """Its last line names the git object of that page; `git cat-file -p ID` shows the text that was translated."""
    english = PAGES[original_of(page)].read_bytes()
    now = hashlib.sha1(b"blob %d\0" % len(english) + english).hexdigest()[:12]
    followed = re.search(r"<!-- follows (\S+) at ([0-9a-f]{12}) -->\n\Z", PAGES[page].read_text("utf-8"))
    assert followed is not None
    assert followed[1] == original_of(page)
    if datetime.now(UTC).date() > MAY_LAG.get(page, date.min):
        assert followed[2] == now, f"translate what changed; then its last line is: follows {followed[1]} at {now}"
