"""Redis in memory that runs the shipped Lua, with the commands that the scripts use.

The Lua is the library's own text, in Lua 5.1 as in Redis; `redis.call` ends in the methods here. A script that uses a
global of its own fails, as in Redis.
What happens to a server (wipe, restart, failover) is a method, too.
"""

from __future__ import annotations

import bisect
import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import lupa.lua51

from snowredis.errors import ConfigError, StoreUnavailable
from snowredis.servers.scripts import split_reply
from tests.lab.simulation.world import World

_DRIVER = """
local call, pcall = ...
local redis = { call = call, pcall = pcall, REDIS_VERSION_NUM = 0x00070000 }
redis.error_reply = function(text) return { err = text } end
-- all globals that a script may use
local globals = {
  redis = redis, string = string, math = math, table = table, tonumber = tonumber, tostring = tostring,
  type = type, ipairs = ipairs, pairs = pairs, unpack = unpack,
}
local function refuse(_, name) error('a script uses a global of its own: ' .. tostring(name)) end
setmetatable(globals, { __index = refuse, __newindex = refuse })
return function(sha1hex)
  redis.sha1hex = sha1hex
  return function(script, count, ...)
    local all, keys, argv = { ... }, {}, {}
    for i = 1, count do keys[i] = all[i] end
    for i = count + 1, #all do argv[i - count] = all[i] end
    rawset(globals, 'KEYS', keys)
    rawset(globals, 'ARGV', argv)
    return setfenv(script, globals)()
  end
end
"""


# what a server says in INFO of which server it is; "changing" is a proxy before several, and what
# shows no identity is what scripts find on some rented servers
SHOWN, CONSTANT, CHANGING = "shown", "constant", "changing"
ABSENT, NO_RUN_ID, NO_REPLICATION_ID, REFUSED = "absent", "no run id", "no replication id", "refused"
WITHOUT_IDENTITY = (ABSENT, NO_RUN_ID, NO_REPLICATION_ID, REFUSED)


class CommandRefused(Exception):
    """Error that a server sends in place of a command's reply."""


class Lua:
    """One interpreter for all servers of this process; scripts are compiled once."""

    def __init__(self) -> None:
        self._runtime = lupa.lua51.LuaRuntime(unpack_returned_tuples=False)
        self.server: RedisModel | None = None
        self._table = self._runtime.table_from
        self._run = self._runtime.execute(_DRIVER, self._call, self._pcall)(
            lambda text: hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
        )
        self._compile = functools.cache(self._runtime.compile)

    def _call(self, command: str, *args: Any) -> Any:
        assert self.server is not None
        if command in self.server.refused:
            raise CommandRefused(f"NOPERM this user has no permissions to run the '{command.lower()}' command")
        return self._to_lua(self.server.commands[command](*map(str, args)))

    def _pcall(self, command: str, *args: Any) -> Any:
        try:
            return self._call(command, *args)
        except CommandRefused as refused:
            return self._table({"err": str(refused)})

    def _to_lua(self, reply: Any) -> Any:
        if reply is None:
            # a null is false in Redis' Lua
            return False
        if isinstance(reply, list):
            return self._table([self._to_lua(item) for item in reply])
        return reply

    def eval(self, server: RedisModel, source: str, keys: Sequence[str], args: Sequence[str | int]) -> list[str]:
        self.server = server
        try:
            reply = self._run(self._compile(source), len(keys), *keys, *map(str, args))
        except CommandRefused as refused:
            raise StoreUnavailable("simulated", str(refused), code="no-permission") from refused
        error = reply["err"]
        if error is not None:
            raise ConfigError(str(error))
        return split_reply(list(reply.values()))


@functools.cache
def lua() -> Lua:
    return Lua()


class RedisModel:
    """One server process, and its data. Its clock is the world's, plus an offset. *shows* is one of the above."""

    def __init__(self, world: World, name: str, shows: str = SHOWN) -> None:
        self._world = world
        self.name = name
        self.show(shows)
        self.offset_us = 0
        self.data: dict[str, dict[str, Any]] = {}
        # what it would find at its next start
        self.disk: dict[str, dict[str, Any]] = {}
        # copies of data by time, newest last, if a fault of this schedule may go back to one
        self.history: list[tuple[int, dict[str, dict[str, Any]]]] | None = None
        self.up = True
        # nothing that is sent to it can arrive
        self.unreachable = False
        # commands that its user may not run; what a script wrote before it calls one stays, as in Redis
        self.refused: set[str] = set()
        self.runs = 0
        # whether the last script changed something; kept for servers without an identity only
        self.wrote = False
        # worker ids that a step of the rebuilding of an index reads
        self.index_step = world.random.choice((1, 3, 500))
        self._start()
        self.commands: Mapping[str, Callable[..., Any]] = {
            "TIME": self._time, "INFO": self._info, "DEL": self._del, "UNLINK": self._del,
            "HGETALL": self._hgetall, "HGET": self._hget, "HMGET": self._hmget, "HSET": self._hset, "HDEL": self._hdel,
            "HEXISTS": self._hexists, "HINCRBY": self._hincrby,
            "ZADD": self._zadd, "ZREM": self._zrem, "ZCARD": self._zcard, "ZCOUNT": self._zcount,
            "ZRANGE": self._zrange, "ZRANGEBYSCORE": self._zrangebyscore, "XADD": self._xadd,
        }  # fmt: skip

    def _start(self) -> None:
        self.run_id = f"{self._world.random.getrandbits(160):040x}"
        self.promote()
        self.started_s = self.now_us // 1_000_000

    @property
    def now_us(self) -> int:
        return self._world.now_us + self.offset_us

    def eval(self, source: str, keys: Sequence[str], args: Sequence[str | int]) -> list[str]:
        self.runs += 1
        before = self.copy_data() if self.shows in WITHOUT_IDENTITY else self.data
        bounds = "STEP, LOOKED_AT, NEARLY = "
        reply = lua().eval(self, source.replace(f"{bounds}1000", f"{bounds}{self.index_step}"), keys, args)
        self.wrote = before is not self.data and before != self.data
        if self.history is not None:
            self.history.append((self._world.now_us, self.copy_data()))
        return reply

    # --- what happens to servers -------------------------------------------------------------------

    def copy_data(self) -> dict[str, dict[str, Any]]:
        return {key: dict(value) for key, value in self.data.items()}

    def history_until(self, time_us: int) -> list[tuple[int, dict[str, dict[str, Any]]]]:
        assert self.history is not None
        return self.history[: bisect.bisect_right(self.history, time_us, key=lambda entry: entry[0])]

    def data_at(self, time_us: int) -> dict[str, dict[str, Any]]:
        """Return a copy of the data as it was at *time_us*."""
        before = self.history_until(time_us)
        return {key: dict(value) for key, value in before[-1][1].items()} if before else {}

    def promote(self) -> None:
        """Become master: what it writes from now on is another history."""
        self.replid = f"{self._world.random.getrandbits(160):040x}"

    def save(self) -> None:
        """Write a snapshot."""
        self.disk = self.copy_data()

    def crash(self) -> None:
        """Kill it and start it again: it has what was on disk."""
        self.restart({key: dict(value) for key, value in self.disk.items()})

    def wipe(self) -> None:
        self.data = {}

    def restart(self, data: dict[str, dict[str, Any]]) -> None:
        """Become another server process, with the data that it read from disk."""
        self.data, self.up = data, True
        self._start()

    def show(self, what: str) -> None:
        """Set the identity that INFO shows from now on."""
        self.shows = what
        # what INFO answers in scripts; None: it is refused
        self.info: Callable[[str], str] | None = None if what == REFUSED else self.section

    def started_before(self, seconds: int) -> None:
        """Its uptime is longer than it has served this pool: it was a replica, or its clock was stepped."""
        self.started_s -= seconds

    # --- commands ----------------------------------------------------------------------------------

    def _of(self, key: str) -> dict[str, Any]:
        return self.data.get(key, {})

    def _time(self) -> list[str]:
        seconds, micros = divmod(self.now_us, 1_000_000)
        return [str(seconds), str(micros)]

    def _info(self, *sections: str) -> str:
        if self.info is None:
            raise CommandRefused("NOPERM this user has no permissions to run the 'info' command")
        return "".join(map(self.info, sections))

    def section(self, name: str) -> str:
        """Return a section of INFO, with the identity that the server shows."""
        run_id, replid = self.run_id, self.replid
        if self.shows == CONSTANT:
            run_id = replid = f"{1:040x}"
        elif self.shows == CHANGING:
            run_id = replid = f"{self._world.random.getrandbits(160):040x}"
        if name == "replication":
            shown = self.shows not in (ABSENT, NO_REPLICATION_ID)
            return f"# Replication\r\nrole:master\r\nmaster_replid:{replid}\r\n" if shown else "role:master\r\n"
        assert name == "server"
        uptime_s = max(0, self.now_us // 1_000_000 - self.started_s)
        shown = self.shows not in (ABSENT, NO_RUN_ID)
        which = f"run_id:{run_id}\r\n" if shown else ""
        return f"# Server\r\nredis_version:7.0.15\r\n{which}uptime_in_seconds:{uptime_s}\r\n"

    def _del(self, *keys: str) -> int:
        return sum(self.data.pop(key, None) is not None for key in keys)

    def _hgetall(self, key: str) -> list[str]:
        return [text for pair in self._of(key).items() for text in pair]

    def _hget(self, key: str, name: str) -> str | None:
        return self._of(key).get(name)

    def _hmget(self, key: str, *names: str) -> list[str | None]:
        return list(map(self._of(key).get, names))

    def _hset(self, key: str, *pairs: str) -> int:
        self.data.setdefault(key, {}).update(zip(pairs[::2], pairs[1::2], strict=True))
        return 1

    def _hdel(self, key: str, *names: str) -> int:
        found = self._of(key)
        return sum(found.pop(name, None) is not None for name in names)

    def _hexists(self, key: str, name: str) -> int:
        return int(name in self._of(key))

    def _hincrby(self, key: str, name: str, by: str) -> int:
        found = self.data.setdefault(key, {})
        found[name] = str(int(found.get(name, "0")) + int(by))
        return int(found[name])

    def _zadd(self, key: str, *args: str) -> int:
        *flags, score, member = args
        assert flags in ([], ["XX", "GT"])
        scores = self.data.setdefault(key, {})
        is_new = member not in scores
        if not flags:
            scores[member] = float(score)
        elif not is_new:
            scores[member] = max(scores[member], float(score))
        return int(is_new and not flags)

    def _zrem(self, key: str, member: str) -> int:
        return int(self._of(key).pop(member, None) is not None)

    def _zcard(self, key: str) -> int:
        return len(self._of(key))

    def _zcount(self, key: str, low: str, high: str) -> int:
        assert low.startswith("(")
        assert high == "+inf"
        return sum(score > float(low[1:]) for score in self._of(key).values())

    def _sorted(self, key: str) -> list[tuple[float, str]]:
        return sorted((score, member) for member, score in self._of(key).items())

    def _zrange(self, key: str, first: str, last: str, word: str) -> list[str]:
        assert (first, last, word) == ("0", "0", "WITHSCORES")
        return [text for score, member in self._sorted(key)[:1] for text in (member, f"{score:.17g}")]

    def _zrangebyscore(self, key: str, low: str, high: str, *words: str) -> list[str]:
        *scores, limit, offset, count = words
        assert (scores in ([], ["WITHSCORES"]), limit, offset) == (True, "LIMIT", "0")
        assert low == "-inf" or low.startswith("(")
        above = float(low.removeprefix("("))
        found = [(score, member) for score, member in self._sorted(key) if above < score <= float(high)]
        return [
            text
            for score, member in found[: int(count)]
            for text in ((member, f"{score:.17g}") if scores else (member,))
        ]

    def _xadd(self, key: str, *args: str) -> str:
        assert args[:2] == ("MAXLEN", "~")
        fields = dict(zip(args[4::2], args[5::2], strict=True))
        if self._world.trace is not None:
            self._world.note("%s: event %s", self.name, fields)
        return "1-0"
