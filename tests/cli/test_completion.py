"""Shell completion: the script of every shell, and what bash makes of its own."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from snowredis.cli.options import SHELLS

Cli = Callable[..., Any]


def test_the_shells_are_those_of_shtab() -> None:
    shtab = pytest.importorskip("shtab")
    assert tuple(shtab.SUPPORTED_SHELLS) == SHELLS


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_names_every_command_and_its_options(shell: str, offline: Cli) -> None:
    pytest.importorskip("shtab")
    result = offline("--print-completion", shell)
    assert (result.code, result.err) == (0, "")
    for word in ("snowredis", "doctor", "pool", "create", "guard-rollbacks", "token-file"):
        assert word in result.out


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("snowredis wo", ["workers"]),
        ("snowredis pool ", ["create", "show", "change-layout", "delete"]),
        ("snowredis workers --wa", ["--watch"]),
        ("snowredis pool create x --durability ", ["detect", "assured", "none"]),
        ("snowredis serve --token-file tok", ["token.txt"]),
    ],
)
def test_bash_completes_commands_options_values_and_files(
    line: str, expected: list[str], offline: Cli, tmp_path: Path
) -> None:
    pytest.importorskip("shtab")
    (tmp_path / "script").write_text(offline("--print-completion", "bash").out)
    (tmp_path / "token.txt").touch()
    words = line.split(" ")
    ask = (
        "source ./script; spec=$(complete -p snowredis); function=${spec#*-F }; "
        f"COMP_WORDS=({shlex.join(words)}); COMP_CWORD={len(words) - 1}; "
        f"COMP_LINE={shlex.quote(line)}; COMP_POINT=${{#COMP_LINE}}; "
        f'${{function% snowredis}} snowredis {shlex.join([words[-1], words[-2]])}; printf "%s\\n" "${{COMPREPLY[@]}}"'
    )
    done = subprocess.run(["bash", "--norc", "-c", ask], cwd=tmp_path, capture_output=True, text=True)
    assert (done.stdout.split(), done.stderr) == (expected, "")


def test_without_shtab_it_says_how_to_install_it(offline: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    result = offline("--print-completion", "bash")
    assert result.code == 1
    assert "shtab is not installed. Install it with: pip install 'snowredis[cli]', or in a checkout: " in result.err
