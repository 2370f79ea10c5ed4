"""The wheel holds all that the library needs, and works from anywhere."""

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from snowredis.cli import main
from tests.support.programs import ROOT
from tests.support.servers import RedisServer
from tests.support.shared import made_once

PIP_WHEEL = (sys.executable, "-m", "pip", "wheel", "--no-deps")


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | environment,
        capture_output=True,
        text=True,
        timeout=580,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def setuptools_is_recent() -> bool:
    """Return true if the build needs no download: pyproject.toml requires version 77 or later."""
    if importlib.util.find_spec("setuptools") is None:
        return False
    from importlib.metadata import version

    return int(version("setuptools").partition(".")[0]) >= 77


def isolation() -> list[str]:
    return ["--no-build-isolation"] if setuptools_is_recent() else []


def build_sdist(tree: Path, to: Path) -> Path:
    if not setuptools_is_recent():
        pytest.skip("setuptools 77 or later is not installed")
    build = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
    to.mkdir()
    run(sys.executable, "-c", build, to, cwd=tree, SOURCE_DATE_EPOCH="1790000000")
    (archive,) = to.glob("*.tar.gz")
    return archive


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory with a source archive and a wheel in dist/, and an environment; processes that run tests share it."""

    def make(directory: Path) -> None:
        # a copy of the checkout, so that no file of it is touched and nothing of an older build gets in
        for name in ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md"):
            shutil.copy(ROOT / name, directory)
        for name in ("snowredis", "scripts", "tests", "docs", "examples"):
            ignored = shutil.ignore_patterns("__pycache__", "*.so")
            shutil.copytree(ROOT / name, directory / name, ignore=ignored)
        # built from the source archive, as who packages it builds it
        archive = build_sdist(directory, directory / "dist")
        run(*PIP_WHEEL, *isolation(), "-w", directory / "dist", archive, cwd=directory)
        install(next((directory / "dist").glob("*.whl")), directory / "venv")

    return made_once(tmp_path_factory, "wheel", make)


def install(wheel: Path, home: Path) -> None:
    """Make an environment of its own with the wheel; its dependencies are those of the one that runs the tests."""
    run(sys.executable, "-m", "venv", "--without-pip", home, cwd=home.parent)
    (site,) = home.glob("lib/python*/site-packages")
    run(sys.executable, "-m", "pip", "install", "--no-deps", "--target", site, wheel, cwd=home)
    # behind the wheel; .pth files in there, such as that of an editable install, are not read
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")


@pytest.fixture
def source_archive(built: Path) -> Path:
    return next((built / "dist").glob("*.tar.gz"))


@pytest.fixture
def wheel(built: Path) -> Path:
    return next((built / "dist").glob("*.whl"))


@pytest.fixture
def python(built: Path) -> Path:
    return built / "venv" / "bin" / "python"


def test_two_checkouts_make_the_same_source_archive(source_archive: Path, built: Path, tmp_path: Path) -> None:
    other = tmp_path / "elsewhere"
    shutil.copytree(built, other, ignore=shutil.ignore_patterns("build", "dist", "venv", "*.egg-info"))
    # cloned at another time, under another umask
    for path in other.rglob("*"):
        path.chmod(path.stat().st_mode & 0o700)
        os.utime(path, (1_700_000_000, 1_700_000_000))
    assert build_sdist(other, tmp_path / "dist").read_bytes() == source_archive.read_bytes()
    with tarfile.open(source_archive) as archive:
        assert {member.mtime for member in archive} == {1_790_000_000}
        assert {member.mode for member in archive} == {0o644, 0o755}


def test_the_wheel_holds_every_module_every_script_and_the_type_marker_and_nothing_else(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    source = ROOT / "snowredis"
    scripts = list(source.rglob("*.lua"))
    wanted = {*source.rglob("*.py"), *scripts, *source.glob("web/static/*"), source / "py.typed"}
    assert {path.parent.parent.name for path in scripts} == {"numbers", "protocol", "servers"}
    assert {path.relative_to(ROOT).as_posix() for path in wanted} - names == set()
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"snowredis"}
    assert [name for name in names if name.endswith((".c", ".h", "_build.py"))] == []


def test_a_wheel_from_a_checkout_names_its_commit_and_without_a_working_compiler_is_for_every_machine(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is tagged by what it contains, not by what was to be built."""
    # a hook of git runs with these: the commit below would be made in the repository of the hook
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)
    if not setuptools_is_recent():
        pytest.skip("setuptools 77 or later is not installed")
    checkout = tmp_path / "checkout"
    shutil.copytree(built, checkout, ignore=shutil.ignore_patterns("build", "dist", "venv", "*.egg-info"))
    git = ("git", "-c", "user.name=tests", "-c", "user.email=tests@localhost")
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "all of it"]):
        run(*git, *command, cwd=checkout)
    commit = run(*git, "rev-parse", "HEAD", cwd=checkout)
    run(*PIP_WHEEL, *isolation(), "-w", tmp_path, checkout, cwd=tmp_path, CC="/bin/false")
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    install(wheel, tmp_path / "venv")
    said = run(tmp_path / "venv" / "bin" / "python", "-m", "snowredis", "--version", cwd=tmp_path)
    named = said.partition(" of commit ")[2].partition(":")[0].removesuffix("-dirty")
    assert len(named) >= 7
    assert commit.startswith(named)


def test_the_source_archive_holds_what_is_needed_to_build_it_and_to_read_about_it(source_archive: Path) -> None:
    with tarfile.open(source_archive) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for wanted in ("CHANGELOG.md", "docs/explanation/uniqueness.md", "examples/quickstart.py", "scripts/_build.py"):
        assert wanted in names
    assert "snowredis/snowflake/ids/_fastpath.c" in names
    assert [name for name in names if name.endswith((".pyc", ".so"))] == []
    assert [name for name in names if name.startswith(("tests/", "scripts/test", ".ci"))] == []


def test_the_installed_package_is_the_one_that_gets_imported_and_has_the_command_line(
    python: Path, tmp_path: Path
) -> None:
    program = (
        "import sys, snowredis; from snowredis.cli import main; print(snowredis.__file__); sys.exit(main(['--help']))"
    )
    where, usage = run(python, "-c", program, cwd=tmp_path).split("\n", 1)
    assert Path(where).is_relative_to(python.parents[1])
    assert "generate" in usage


def add_kind(site: Path) -> None:
    """Install another package, which declares a kind of ids."""
    (site / "another_package.py").write_text("from snowredis.kinds.libraries import UUID4 as KIND\n")
    about = site / "another_package-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: another-package\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[snowredis.generators]\nof_another_package = another_package:KIND\n")


# what redis-py and snowredis use if it is there, and this program does not: it takes long to freeze
NOT_FROZEN = (
    "bson",
    "cryptography",
    "lupa",
    "opentelemetry",
    "psycopg",
    "requests",
    "setuptools",
    "simplejson",
    "sqlalchemy",
)


@pytest.mark.timeout(600)
def test_a_program_frozen_by_pyinstaller_makes_ids_of_all_kinds(
    python: Path, server: RedisServer, tmp_path: Path
) -> None:
    """Without a line for it: PyInstaller finds the hook of the installed package."""
    pytest.importorskip("PyInstaller")
    (site,) = python.parents[1].glob("lib/python*/site-packages")
    add_kind(site)
    program = Path(__file__).parent / "programs" / "frozen.py"
    options = ["--log-level=ERROR", *(f"--exclude-module={name}" for name in NOT_FROZEN)]
    run(python, "-m", "PyInstaller", *options, "--specpath=.", program, cwd=tmp_path)
    assert main(["pool", "create", "default", "--url", server.url]) == 0
    frozen = tmp_path / "dist/frozen/frozen"
    said = run(frozen, tmp_path / "embedded", cwd=tmp_path, SNOWREDIS_URL=server.url).splitlines()
    implementation = run(python, "-c", "import snowredis; print(snowredis.IMPLEMENTATION)", cwd=tmp_path).strip()
    assert said == [implementation, "0", "True", "True", "True", "True", "default", "10", "NumbersClosed", "True"]
