"""Commands that packages add to the command line by entry points."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest

from snowredis.cli import GROUP, JOINED, build_parser, joined_commands, main

ROOT = Path(__file__).parents[2]


def test_the_commands_of_this_package_are_entry_points_too() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["entry-points"][GROUP] == JOINED


def test_a_command_of_another_package_is_found_but_not_looked_for_by_known_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "other_command.py").write_text(
        "from snowredis.cli.options import Command\n"
        "def run(args): print('hello'); return 0\n"
        "GREET = Command('other-command', 'greet', '', [('snowredis other-command', '')], run=run)\n"
    )
    info = tmp_path / "other_command-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other-command\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[{GROUP}]\nother-command = other_command:GREET\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert main(["other-command"]) == 0
    assert capsys.readouterr().out == "hello\n"
    assert "other-command" in build_parser().format_help()
    monkeypatch.delitem(sys.modules, "other_command")
    assert [command.name for command in joined_commands("decode")] == ["merge", "migrate"]
    assert "other_command" not in sys.modules
