"""The end of all reservations of a directory's servers, kept in a file from one server to the next.

A server keeps nothing on disk, so a new one has no marks of the one before. One time in a file replaces them, the
bound: all reservations that earlier servers granted end before it. The next server is started only when the clock has
passed the bound, so its pools need no floor.

The file says "running" from before a server starts until it has ended and its marks were read. If it says so and no
server runs (the supervisor was killed, or the machine lost power), the bound is the latest time that a pool of that
server can have reserved: the time at its end plus its reach.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from dataclasses import asdict, dataclass, replace
from importlib import resources
from pathlib import Path

# ttl and max_clock_lead of a pool with the default settings; the least that counts
DEFAULT_REACH_MS = 32_500
# how often the time is written while a server runs
NOTE_EVERY_MS = 5_000

# pool.lua begins with the format of the record, up to this line
_END_OF_RECORD = "-- The end of the record's format.\n"

# Returns the end of all reservations of all pools, ms since 1970, or -1 if it is unknown: the server was flushed, a
# pool was deleted, or a record cannot be read. Replaces each pool in the same step, so that nothing is reserved later.
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
          top = math.max(top, r['until'], r.outage)
          for _, mark in ipairs(r.lanes) do top = math.max(top, mark) end
        end
      end
      if top > 0 then
        if not tick then return -1 end
        -- a tick belongs to the reservation that contains its first ms: the reservation lasts to the end of that tick
        highest = math.max(highest, epoch + math.ceil((top - epoch) / tick) * tick)
      end
      redis.call('SET', key, 'the embedded server has ended')
    end
  end
until cursor == '0'
return highest
"""


def seal_script() -> str:
    """Return the script that the supervisor runs before it ends the server. ARGV[1] is FRESH_KEY."""
    # read as a file, since this package must not import snowflake/
    pool = resources.files("snowredis").joinpath("snowflake", "lua", "pool.lua").read_text("utf-8")
    record = pool.partition(_END_OF_RECORD)[0]
    return f"{record}\n{_SEAL}"


def now_ms() -> int:
    """Return the time of this machine's clock, ms since 1970."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _State:
    """Content of the file.

    Attributes:
        until_ms: the bound of the servers that have ended, ms since 1970; 0 if there was none.
        running: True if a server was started, and its end was not written.
        seen_ms: when the server was seen running, ms since 1970.
        reach_ms: how far ahead of the clock its pools may reserve.
    """

    until_ms: int = 0
    running: bool = False
    seen_ms: int = 0
    reach_ms: int = 0


class Reserved:
    """The file. Only a process with the start lock writes it, or the supervisor when it ends."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def bound_ms(self) -> int:
        """Return the bound, ms since 1970; 0 if no server ever ran. Call it only while none runs."""
        state = self._read()
        if state.running:
            # the clock may be behind now and have been right when the server ended
            last_ms = max(now_ms(), state.seen_ms + NOTE_EVERY_MS)
            reach_ms = max(state.reach_ms, DEFAULT_REACH_MS)
            state = _State(until_ms=max(state.until_ms, last_ms + reach_ms))
            self._write(state)
        return state.until_ms

    def begin(self) -> None:
        """Write that a server is about to be started."""
        self._write(_State(until_ms=self._read().until_ms, running=True, seen_ms=now_ms()))

    def use(self, reach_ms: int) -> None:
        """Write how far ahead of the clock a pool may reserve, before it reserves anything."""
        state = self._read()
        if reach_ms > state.reach_ms:
            self._write(replace(state, reach_ms=reach_ms))

    def note_time(self) -> None:
        """Write the time at which the server is still running, every NOTE_EVERY_MS."""
        state = self._read()
        if state.running and abs(now_ms() - state.seen_ms) >= NOTE_EVERY_MS:
            self._write(replace(state, seen_ms=max(state.seen_ms, now_ms())))

    def end(self, until_ms: int) -> None:
        """Write that the server has ended, or did not start, and that its reservations end before *until_ms*."""
        self._write(_State(until_ms=max(self._read().until_ms, until_ms)))

    def _read(self) -> _State:
        try:
            return _State(**json.loads(self._path.read_text()))
        except FileNotFoundError:
            return _State()
        except (OSError, ValueError, TypeError):
            # incomplete, since the machine lost power
            return _State(running=True)

    def _write(self, state: _State) -> None:
        new = self._path.with_suffix(".new")
        with contextlib.suppress(FileNotFoundError):
            new.unlink()
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(fd, "w") as file:
            json.dump(asdict(state), file)
        new.replace(self._path)
