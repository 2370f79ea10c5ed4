"""The highest reserved time of a directory's servers, kept from one server to the next.

A server keeps nothing on disk, so a new one knows no mark of the one before. What replaces the
marks is one bound in a file: no reservation that an earlier server granted reaches it. The next
server is started only when the clock has passed the bound, and its pools need no floor then.

The file says "running" from before a server starts until it has ended and its marks were read.
Who finds it running where nothing runs (a supervisor that was killed, a machine that lost power)
takes for the bound what any pool of that server can have reserved: the time plus its reach.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from dataclasses import asdict, dataclass, replace
from importlib import resources
from pathlib import Path

# ttl and max_clock_lead of a pool with the default settings
DEFAULT_REACH_MS = 32_500
# how often the time is noted while a server runs
NOTE_EVERY_MS = 5_000

# Returns the ms since 1970 that no reservation of any pool reaches, or -1 where that cannot be told: the server was
# flushed, a pool was deleted, or a record cannot be read. Replaces each pool in the same step, so that no reservation
# is granted afterwards.
_SEAL = """
if redis.call('EXISTS', ARGV[1]) == 0 then return -1 end
local highest, cursor = 0, '0'
repeat
  local page = redis.call('SCAN', cursor, 'MATCH', 'snowredis:{*}', 'COUNT', 1000)
  cursor = page[1]
  for _, key in ipairs(page[2]) do
    if redis.call('TYPE', key)['ok'] == 'hash' then
      local signature = redis.call('HGET', key, 'signature') or ''
      local tick, epoch = string.match(signature, 'tick_ms=(%d+);epoch_ms=(-?%d+)')
      local top, fields = 0, redis.call('HGETALL', key)
      for i = 1, #fields, 2 do
        if string.sub(fields[i], 1, 2) == 'w:' then
          local r = unpack_record(fields[i + 1])
          if not r then return -1 end
          top = math.max(top, r['until'])
          for _, mark in ipairs(r.lanes) do top = math.max(top, mark) end
        end
      end
      if top > 0 then
        if not tick then return -1 end
        -- a tick belongs to whose reservation holds its first ms: to its end
        highest = math.max(highest, epoch + math.ceil((top - epoch) / tick) * tick)
      end
      redis.call('SET', key, 'the embedded server has ended')
    end
  end
until cursor == '0'
return highest
"""


def seal_script() -> str:
    """Return the script that the server runs when it ends."""
    # the form of a record, as the pools' scripts have it; as a file, since lease/ is above this package
    record = resources.files("snowredis").joinpath("lease", "lua", "record.lua").read_text("utf-8")
    return f"{record}\n{_SEAL}"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Noted:
    """What the file says.

    Attributes:
        until_ms: the bound, of servers that have ended.
        running: a server was started, and its end was not noted.
        seen_ms: when that was noted last.
        reach_ms: how far beyond the clock its pools may reserve.
    """

    until_ms: int = 0
    running: bool = False
    seen_ms: int = 0
    reach_ms: int = 0


class Reserved:
    """The file. Whoever writes holds the directory's start lock, or is its supervisor at the end."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def bound_ms(self) -> int:
        """Return the bound, 0 if no server ever ran. Call it only while none runs."""
        noted = self._read()
        if noted.running:
            # a clock that is behind now may have been right when the server ended
            last_ms = max(now_ms(), noted.seen_ms + NOTE_EVERY_MS)
            reach_ms = max(noted.reach_ms, DEFAULT_REACH_MS)
            noted = _Noted(until_ms=max(noted.until_ms, last_ms + reach_ms))
            self._write(noted)
        return noted.until_ms

    def begin(self) -> None:
        """Note that a server is about to be started."""
        self._write(_Noted(until_ms=self._read().until_ms, running=True, seen_ms=now_ms()))

    def use(self, reach_ms: int) -> None:
        """Note, before anything is reserved, how far beyond the clock a pool may reserve."""
        noted = self._read()
        if reach_ms > noted.reach_ms:
            self._write(replace(noted, reach_ms=reach_ms))

    def note_time(self) -> None:
        """Note that the server runs still."""
        noted = self._read()
        if noted.running and abs(now_ms() - noted.seen_ms) >= NOTE_EVERY_MS:
            self._write(replace(noted, seen_ms=max(noted.seen_ms, now_ms())))

    def end(self, until_ms: int) -> None:
        """Note that the server has ended, or never started, and that none of its reservations reaches *until_ms*."""
        self._write(_Noted(until_ms=max(self._read().until_ms, until_ms)))

    def _read(self) -> _Noted:
        try:
            return _Noted(**json.loads(self._path.read_text()))
        except FileNotFoundError:
            return _Noted()
        except (OSError, ValueError, TypeError):
            # cut off when the machine lost power
            return _Noted(running=True)

    def _write(self, noted: _Noted) -> None:
        new = self._path.with_suffix(".new")
        with contextlib.suppress(FileNotFoundError):
            new.unlink()
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(fd, "w") as file:
            json.dump(asdict(noted), file)
        new.replace(self._path)
