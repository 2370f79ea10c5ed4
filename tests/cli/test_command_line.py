"""The command as a whole: help, exit codes, error messages, what it imports."""

import argparse
import io
import os
import platform
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

import snowredis
from snowredis import errors
from snowredis.cli import build_parser, main
from snowredis.cli.commands import layout
from snowredis.cli.exit_codes import CommandError, ExitCode, code_of
from tests.cli.conftest import Cli
from tests.support import warm
from tests.support.programs import ROOT
from tests.support.records import change_record

PROGRAMS = Path(__file__).parent / "programs"
AN_ID = "249736970576592896"


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                yield from parsers(child)


PARSER = build_parser()
COMMANDS = list(parsers(PARSER))[1:]


@pytest.mark.parametrize("parser", COMMANDS, ids=lambda parser: parser.prog)
def test_every_command_has_examples_that_parse(parser: argparse.ArgumentParser) -> None:
    title, *examples = (parser.epilog or "").splitlines()
    assert title == "examples:"
    assert examples
    for example in examples:
        line = re.split(r" {2,}", example.strip())[0]
        # each is about its own command, at the beginning or behind a pipe; what it prints may go to a file
        assert parser.prog in line
        for part in line.partition(" > ")[0].split("|"):
            program, *argv = shlex.split(part)
            if program == "snowredis":
                assert callable(PARSER.parse_args(argv).run)


@pytest.mark.parametrize("parser", COMMANDS, ids=lambda parser: parser.prog)
def test_help_fits_into_80_columns(parser: argparse.ArgumentParser, offline: Cli) -> None:
    result = offline(*parser.prog.split()[1:], "--help", code=ExitCode.OK)
    assert result.out.startswith("usage: snowredis ")
    assert max(map(len, result.out.splitlines())) <= 80


def test_the_help_names_every_command_and_every_exit_code(offline: Cli) -> None:
    text = offline("--help").out
    for parser in COMMANDS:
        assert parser.prog.split()[1] in text
    for code in ExitCode:
        assert str(code.value) in text


def test_version(offline: Cli) -> None:
    shown = offline("--version").out
    assert shown.startswith(f"snowredis {snowredis.__version__}: ids made in {snowredis.IMPLEMENTATION.capitalize()}")
    for part in ("durability detect", f"Python {platform.python_version()}", f"redis-py {redis.__version__}"):
        assert part in shown
    assert shown.count("\n") == 1


def test_what_needs_no_redis_imports_none() -> None:
    packages = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
    commands = ["--help", f"decode {AN_ID}", "layout", "layout twitter", "demo --help", "pool --help"]
    done = subprocess.run(
        [sys.executable, PROGRAMS / "light_commands.py", *commands],
        env=os.environ | {"PYTHONPATH": packages},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_without_docstrings_there_is_no_help_and_commands_run() -> None:
    for words in (["--help"], ["decode", AN_ID]):
        done = subprocess.run(
            [sys.executable, "-OO", "-m", "snowredis", *words], cwd=ROOT, capture_output=True, text=True
        )
        assert (done.returncode, done.stderr) == (0, "")


# --- exit codes ------------------------------------------------------------------------------------


def test_1_for_what_nobody_thought_of(offline: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("of\nall\x1b[31m things")

    monkeypatch.setattr(layout, "_presets", fail)
    result = offline("layout", code=1)
    assert result.err.startswith(r"snowredis: error: unexpected ZeroDivisionError: of all\x1b[31m things")
    assert result.err.count("\n") == 1


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["pool"],
        ["no-such-command"],
        ["decode"],
        ["generate", "-n", "0"],
        ["generate", "-n", "٣"],
        ["generate", "-n", "1_000"],
        ["generate", "-n", "+5"],
        ["pool", "create", "x", "--ttl", "nan"],
        ["pool", "create", "x", "--ttl", "soon"],
        ["sql", "sqlite", "--start", "yesterday"],
        ["decode", "--format", "base99", "1"],
        ["gameday", "redis://h", "--ttl", "1"],
        ["gameday", "redis://h", "--workers", "1"],
        ["pool", "create"],
    ],
    ids=" ".join,
)
def test_2_for_a_line_that_makes_no_sense(argv: list[str], offline: Cli) -> None:
    result = offline(*argv, code=2)
    assert result.out == ""
    assert result.err


@pytest.mark.parametrize("command", ["numbers create", "workers"])
def test_what_a_command_does_not_take_leads_to_the_help_of_that_command(command: str, offline: Cli) -> None:
    result = offline(*command.split(), "orders", "more", "--step", "10")
    assert (result.code, result.err.rstrip().endswith(f"See: snowredis {command} --help")) == (2, True), result.err


@pytest.mark.parametrize(
    "argv",
    [
        ["decode", "no id!"],
        ["decode", AN_ID, "--layout", "nothing-like-it"],
        ["decode", AN_ID, "--layout", "20/0/0/10/10"],
        ["layout", "37/0/0/20/16"],
        ["generate", "--url", "http://localhost"],
        ["generate", "--pool", "two words"],
        ["pool", "create", "x", "--ttl", "0.01"],
        ["workers", "--url", "embedded:nowhere"],
    ],
    ids=" ".join,
)
def test_3_for_input_that_cannot_be_used(argv: list[str], cli: Cli) -> None:
    result = cli(*argv, code=3)
    assert result.out == ""
    assert result.err.startswith("snowredis: error: ")
    assert result.err.count("\n") == 1


def test_3_for_a_variable_that_cannot_be_read(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SNOWREDIS_TTL", "soon")
    assert "SNOWREDIS_TTL must be seconds, 0 or more" in cli("workers", code=ExitCode.BAD_INPUT).err


@pytest.mark.parametrize("argv", ["generate --pool x", "workers", "pool show", "pool create x"])
def test_4_if_redis_does_not_answer(argv: str, offline: Cli) -> None:
    result = offline(*argv.split(), "--url", "redis://user:secret@127.0.0.1:1/0", code=4)
    assert "127.0.0.1:1" in result.err
    assert "secret" not in result.err


@pytest.mark.parametrize(
    "argv",
    [
        ["workers", "--pool"],
        ["events", "--pool"],
        ["whois", "5", "--pool"],
        ["pool", "show"],
        ["pool", "delete", "--yes"],
    ],
    ids=" ".join,
)
def test_5_for_a_pool_that_is_not_there_with_those_that_are(argv: list[str], cli: Cli, pool_name: str) -> None:
    # the message names the first of many pools in the alphabet
    cli("pool", "create", f".{pool_name}")
    result = cli(*argv, "nope", code=5)
    assert "'nope'" in result.err
    assert pool_name in result.err


def test_6_for_other_settings_than_the_pool_has(cli: Cli, pool_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cli("pool", "create", pool_name)
    monkeypatch.setenv("SNOWREDIS_LAYOUT", "twitter")
    for argv in (["generate", "--pool", pool_name], ["pool", "create", pool_name, "--ttl", "9"]):
        assert pool_name in cli(*argv, code=6).err


def test_7_for_a_pool_that_is_full(cli: Cli, pool_name: str, server_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SNOWREDIS_CLAIM_TIMEOUT", "0")
    cli("pool", "create", pool_name, "--layout", "41/0/0/0/10")
    with snowredis.connect(server_url, pool=pool_name, layout="41/0/0/0/10") as holder:
        holder.claim()
        result = cli("generate", "--pool", pool_name)
    assert result.code == 7
    assert "1 worker ids" in result.err


def test_8_for_a_clock_that_cannot_be_used(cli: Cli, pool_name: str, client: redis.Redis) -> None:
    cli("pool", "create", pool_name, "--layout", "41/0/0/0/10")
    cli("generate", "--pool", pool_name)
    # as if this worker id had been used by a host whose clock is an hour ahead
    change_record(client, pool_name, 0, lanes_ms=(int(client.time()[0]) * 1000 + 3_600_000,))
    assert "behind the clock of Redis" in cli("generate", "--pool", pool_name, code=8).err


@pytest.mark.parametrize(
    ("number", "code", "says"),
    [(signal.SIGINT, 130, b"\nsnowredis: interrupted\n"), (signal.SIGTERM, 130, b"\nsnowredis: interrupted\n")]
    # a reader that has seen enough is no error
    + [(None, 0, b"")],
)
def test_a_command_that_ends_early_releases_its_worker_id(
    cli: Cli,
    command: Callable[..., list[str]],
    process_environment: dict[str, str],
    pool_name: str,
    number: signal.Signals | None,
    code: int,
    says: bytes,
) -> None:
    cli("pool", "create", pool_name)
    words = command("generate", "-n", "1000000000", "--pool", pool_name)
    pipe = subprocess.PIPE
    with warm.Popen(words, env=process_environment, stdout=pipe, stderr=pipe) as process:
        assert process.stdout
        assert process.stderr
        assert process.stdout.readline()
        if number is None:
            process.stdout.close()
        else:
            process.send_signal(number)
            process.stdout.read()
        assert process.stderr.read() == says
    assert process.returncode == code
    assert "no worker is alive" in cli("workers", "--pool", pool_name).out


@pytest.mark.parametrize("name", ["uvicorn", "starlette"])
def test_serve_says_how_to_install_what_it_needs(name: str) -> None:
    program = f"import sys; sys.modules[{name!r}] = None; from snowredis.cli import main; sys.exit(main(['serve']))"
    done = warm.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"snowredis: error: {name} is not installed. Install it with: pip install 'snowredis[web]', "
        "or in a checkout: pip install '.[web]'\n"
    )


def test_every_error_of_the_library_has_its_exit_code() -> None:
    def kinds(kind: type[Exception]) -> Iterator[type[Exception]]:
        for child in kind.__subclasses__():
            yield child
            yield from kinds(child)

    found: dict[int, set[str]] = {}
    for kind in kinds(errors.SnowredisError):
        if kind.__module__ == "snowredis.errors":
            # never called: only the kind counts
            found.setdefault(code_of(kind.__new__(kind)), set()).add(kind.__name__)
    assert found == {
        3: {"ConfigError", "LayoutError", "InvalidId"},
        4: {"StoreUnavailable"},
        5: {"PoolNotFound"},
        6: {"LayoutMismatch"},
        7: {"PoolExhausted"},
        8: {"LeaseExpired", "LeaseLost", "ClockMovedBack", "ClockSkewed", "GeneratorClosed"},
    }
    assert [code_of(error) for error in (CommandError(ExitCode.POOL_NOT_FOUND, "x"), OSError("x"))] == [5, 1]


def test_an_encoding_that_knows_no_ellipsis_ends_no_command(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    assert main(["decode", AN_ID]) == 0
    sys.stdout.flush()
    assert b"worker " in raw.getvalue()


@pytest.mark.parametrize("command_line", ["layout", "--version"])
def test_output_that_cannot_be_written_is_one_line_and_an_exit_code(
    command: Callable[..., list[str]], process_environment: dict[str, str], command_line: str
) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = warm.run(
            command(*command_line.split()), env=process_environment, stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == ExitCode.ERROR
    assert done.stderr == "snowredis: error: the output could not be written: No space left on device\n"


@pytest.mark.parametrize("text", ["-5", "-1234567890123"])
def test_a_minus_sign_is_refused(cli: Cli, pool_name: str, text: str) -> None:
    cli("pool", "create", pool_name)
    for argv in (["decode", text], ["whois", text, "--pool", pool_name], ["decode", "--format", "base62", text]):
        assert "have no sign" in cli(*argv, code=ExitCode.BAD_INPUT).err


def test_ctrl_c_while_the_commands_are_imported_prints_no_traceback() -> None:
    code = (
        "import runpy, sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'snowredis.cli': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Finder())\n"
        "runpy.run_module('snowredis', run_name='__main__')\n"
    )
    ended = warm.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (ExitCode.INTERRUPTED, "")
