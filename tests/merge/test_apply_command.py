"""`merge plan` and `merge apply` as a person types them, on SQLite."""

from __future__ import annotations

import hashlib
import io
import re
from pathlib import Path

import pytest

from snowredis.cli import main
from snowredis.cli.exit_codes import ExitCode
from tests.merge import game

OPTIONS = ["--id", game.PART_OF_KEY, "--match", f"{game.SAME}=name"]
OPTIONS += [text for key in game.BY_HAND for text in ("--reference", key)]
OPTIONS += [text for column in game.INDEPENDENT for text in ("--independent", column)]


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    directory = tmp_path_factory.mktemp("shards")
    for shard in "ab":
        game.fill(f"sqlite:///{directory}/{shard}.db", shard, 30, counters=True, seed=1)
    return [directory / "a.db", directory / "b.db"]


def digests(paths: list[Path]) -> list[str]:
    return [hashlib.sha256(path.read_bytes()).hexdigest() for path in paths]


def test_a_merge_is_planned_tried_asked_for_and_done(
    shards: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    urls = [f"sqlite:///{path}" for path in shards]
    plan = str(tmp_path / "merge.plan")
    before = digests(shards)
    assert main(["merge", "plan", *urls, "--out", plan, *OPTIONS]) == ExitCode.OK
    text = capsys.readouterr().out
    assert re.search(r"^player\.id +30 +30 +30 +30 +\+ 100", text, re.MULTILINE)
    others = re.split(r"[\s,]+", text.partition("player.id is also in ")[2])
    assert {"audit.player", "friend.one", "guild.leader", "vip.player"} <= set(others)
    assert f"snowredis merge apply {plan} --dry-run" in text

    assert main(["merge", "apply", plan, "--dry-run"]) == ExitCode.OK
    text = capsys.readouterr().out
    assert "nothing was changed" in text
    # nobody is there to be asked
    monkeypatch.setattr("sys.stdin", io.StringIO())
    for argv in (["apply", plan], ["undo", urls[1]]):
        assert main(["merge", *argv]) == ExitCode.USAGE
        assert "Confirm with --yes" in capsys.readouterr().err
    assert digests(shards) == before

    rows = game.contents(urls[1])
    assert main(["merge", "apply", plan, "--yes"]) == ExitCode.OK
    assert "every foreign key of the catalog leads to a row; a person judged 7 columns: audit.player=" in (
        capsys.readouterr().out
    )
    assert main(["merge", "apply", plan, "--yes"]) == ExitCode.OK
    text = capsys.readouterr().out
    assert "by an earlier process (done), with " in text
    assert main(["merge", "abandon", urls[1], "--yes"]) == ExitCode.MERGE_REFUSED
    assert "take it back with `snowredis merge undo`" in capsys.readouterr().err
    assert main(["merge", "undo", urls[1], "--yes"]) == ExitCode.OK
    assert "ids have their old values" in capsys.readouterr().out
    assert game.contents(urls[1]) == rows
    assert main(["merge", "undo", urls[1], "--yes"]) == ExitCode.MERGE_REFUSED
    assert "no ids were changed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["plan", "a", "b"], ExitCode.SOURCE_UNREADABLE, "'a' is not the URL of a database"),
        (["plan", "oracle://h/d", "b"], ExitCode.SOURCE_UNREADABLE, "oracle is not supported"),
        (["plan", "nothing://h/d", "b"], ExitCode.SOURCE_UNREADABLE, "Nothing was read"),
        (["plan", "sqlite:///no.db", "b"], ExitCode.SOURCE_UNREADABLE, "there is no SQLite file 'no.db'"),
        (["plan", "KEPT", "KEPT"], ExitCode.MERGE_REFUSED, "both URLs lead to one database"),
        (["plan", "KEPT", "CHANGED", "--layout", "nothing"], ExitCode.BAD_INPUT, "nothing"),
        (["plan", "KEPT", "CHANGED", "--out", "no/p"], ExitCode.BAD_INPUT, "there is no directory no"),
        (["apply", "none"], ExitCode.MERGE_REFUSED, "there is no plan none"),
        (["apply", "none", "--batch-rows", "0"], ExitCode.USAGE, "1 is the minimum"),
        (
            ["plan", "postgresql+psycopg://u:secret@localhost:1/d", "KEPT"],
            ExitCode.SOURCE_UNREADABLE,
            "u@localhost:1/d",
        ),
    ],
)
def test_what_cannot_work_is_refused_with_the_reason(
    shards: list[Path],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    arguments: list[str],
    code: ExitCode,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    names = {"KEPT": f"sqlite:///{shards[0]}", "CHANGED": f"sqlite:///{shards[1]}"}
    assert main(["merge", *(names.get(argument, argument) for argument in arguments)]) == code
    captured = capsys.readouterr()
    assert message in captured.err
    assert "secret" not in captured.err
    assert list(tmp_path.iterdir()) == []
