"""Find a Redis server program on this machine, and send single commands to a running server."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from urllib.parse import unquote, urlsplit

from snowredis.errors import ConfigError, StoreUnavailable, as_cause

# kept in Redis itself, so that a flushed server loses it: the identity of the server that wrote it
FRESH_KEY = "snowredis:embedded:fresh"
# since when data may be missing, in s since 1970, and the identity of the server that wrote it
MISSING_KEY = "snowredis:embedded:missing"
# the scripts need this version
_OLDEST_VERSION = (6, 2)


@dataclass(frozen=True, slots=True)
class ServerKind:
    """A server that can be started. str() describes it to people.

    Attributes:
        program: path of its binary; empty for fakeredis.
        version: such as "7.0.15".
    """

    program: str
    version: str

    def __str__(self) -> str:
        if not self.program:
            return f"fakeredis {self.version}"
        return f"{Path(self.program).name} {self.version} ({self.program})"


def find_server() -> ServerKind:
    """Find the server that start() would start.

    The first that exists of redis-server and valkey-server on PATH, and fakeredis; or the one that
    SNOWREDIS_EMBEDDED in the environment names: redis-server or fakeredis.

    Blocks:
        a few ms, to run the program with --version; 5 s if that hangs.

    Raises:
        ConfigError: SNOWREDIS_EMBEDDED is none of them.
        StoreUnavailable: there is none; it says how to install one.
    """
    finders = {"redis-server": _on_path, "fakeredis": _fakeredis}
    wanted = os.environ.get("SNOWREDIS_EMBEDDED")
    if wanted and wanted not in finders:
        raise ConfigError(f"SNOWREDIS_EMBEDDED={wanted!r} is unknown. Use one of {', '.join(finders)}, or unset it.")
    for name in [wanted] if wanted else finders:
        if kind := finders[name]():
            return kind
    oldest = ".".join(map(str, _OLDEST_VERSION))
    raise StoreUnavailable(
        "embedded://",
        f"SNOWREDIS_EMBEDDED={wanted} is not installed on this machine"
        if wanted
        else f"this machine has no redis-server of version {oldest} or later. Install one with apt install "
        "redis-server, brew install redis or pip install 'snowredis[fake]'",
    )


def ask(url: str, *words: str) -> bytes:
    """Send one command to the unix socket of *url* and return the first line of the reply, such as b"+PONG" or b":1".

    Does not use redis-py, whose import takes longer than the start of a redis-server.

    Raises:
        StoreUnavailable: no reply within 1 s.
    """
    request = f"*{len(words)}\r\n" + "".join(f"${len(word)}\r\n{word}\r\n" for word in words)
    try:
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(1.0)
            link.connect(unquote(urlsplit(url).path))
            link.sendall(request.encode("ascii"))
            return link.makefile("rb").readline().strip()
    except OSError as error:
        raise StoreUnavailable(url, str(error)) from as_cause(error)


# KEYS[1] is FRESH_KEY, KEYS[2] says since when data may be missing, and to which server. ARGV[1]: the identity of the
# last server; "new" if there was none and no process can have used one.
# Pools, registries and tags see a restart as a server that may have lost writes. This one has lost none if the last
# server wrote FRESH_KEY: then they get the new identity in place of that server's. Returns the new identity.
_CONTINUE = """
local id, wrote = identity(), redis.call('GET', KEYS[1])
if wrote == ARGV[1] then
  for _, key in ipairs(redis.call('KEYS', 'snowredis:*')) do
    if redis.call('TYPE', key)['ok'] == 'hash' then
      for _, field in ipairs({ 'run_id', 'identity' }) do
        if redis.call('HGET', key, field) == wrote then redis.call('HSET', key, field, id) end
      end
    end
  end
end
local now = redis.call('TIME')[1]
local since, known = string.match(redis.call('GET', KEYS[2]) or '', '^(%d+) (.*)$')
if known ~= ARGV[1] then since = now end
-- no outage lane is longer than 31 days
if wrote == ARGV[1] or ARGV[1] == 'new' or now - since > 2678400 then
  redis.call('SET', KEYS[1], id)
else
  redis.call('DEL', KEYS[1])
  redis.call('SET', KEYS[2], since .. ' ' .. id)
end
return { ok = id }
"""


def continue_from(url: str, last_identity: str) -> str:
    """Let the server at *url* continue what the server with *last_identity* wrote; return its own identity.

    *last_identity* is "new" if no other server can have granted anything.
    """
    # read as a file, since this package must not import servers/
    identity = resources.files("snowredis").joinpath("servers", "lua", "identity.lua").read_text("utf-8")
    reply = ask(url, "EVAL", f"{identity}\n{_CONTINUE}", "2", FRESH_KEY, MISSING_KEY, last_identity)
    if not reply.startswith(b"+"):
        raise StoreUnavailable(url, reply.decode(errors="replace"))
    return reply[1:].decode("ascii")


def is_ready(url: str) -> bool:
    """Return True if the server at *url* replies to PING within 1 s."""
    try:
        return ask(url, "PING") == b"+PONG"
    except StoreUnavailable:
        return False


def _on_path() -> ServerKind | None:
    for name in ("redis-server", "valkey-server"):
        if (program := shutil.which(name)) and (version := _version(program)):
            return ServerKind(program, version)
    return None


def _fakeredis() -> ServerKind | None:
    import importlib.metadata
    import importlib.util

    # without lupa it runs no scripts
    if importlib.util.find_spec("fakeredis") and importlib.util.find_spec("lupa"):
        return ServerKind("", importlib.metadata.version("fakeredis"))
    return None


def _version(program: str) -> str | None:
    """Return the version of *program*; None if it does not run on this machine or is too old."""
    silent = subprocess.DEVNULL
    try:
        output = subprocess.check_output([program, "--version"], stdin=silent, stderr=silent, text=True, timeout=5)
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r"v=((\d+)\.(\d+)[\d.]*)", output)
    return match[1] if match and (int(match[2]), int(match[3])) >= _OLDEST_VERSION else None
