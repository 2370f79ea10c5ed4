"""Logs of real runs: what their lines are, and how they are read.

One JSON object a line. All times are ms since 1970, on the clock of whoever shows them. ``do`` says what happened:

begin: a run begins: the constants of its pool
send: a process sends a request: call (a number), process, script, the fields of its request; of all, what its process
    saw last of the pool: seen_incarnation, seen_version
run: a server runs the script of a call: run (a number), call, server, its reply, without the nonce, and what is stored
    after it: of the pool, and of the worker id
reply: the reply to a call arrives at its process: run, the run that sent it
use: a process used ticks of a lane between its last call and this line: worker, lane, visits: for each tick, in the
    order in which ids were made, its first ms and the sequences; in_order: whether no thread can come between an id
    and its line
clone: a process is cloned while it runs: process, child; with a token: it was, while that claim was under way
take: a process goes on with the lease of one that ended: process, token, renewal_id: the last that was answered, and
    as its record has them: until_ms and outage_ms, and used_ms: the end of what may be used of the outage lane
found: a server is found with the data that it, or another, had after a run (0: none; null: its own), and with an
    identity, a number; 1 is that of every server at first. It says what there is, never why
lift: ticks before until_ms, in outage lanes before outage_until_ms, may be repeated from now on, as documented; 0: none
end: the run ends; early: why it is logged no further, and after: how many scripts ran after that
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from snowredis.snowflake.protocol.messages import WANTS_LANE
from snowredis.snowflake.protocol.pool_config import PoolConfig

# how many arguments all scripts have; which are what the caller saw of the pool, and its clock
COMMON, SEEN, CALLER_MS = 4, 2, 3

Entry = dict[str, Any]


def header(config: PoolConfig) -> Entry:
    """Return the constants of a pool that a log begins with."""
    names = ("ttl_ms", "max_clock_lead_ms", "failover_slack_ms", "durability")
    return {name: getattr(config, name) for name in names} | {
        "workers": config.layout.workers,
        # without the outage lane, which is the last one if it is reserved
        "lanes": config.ordinary_lanes,
        "outage_ms": config.outage_reserve_ms,
    }


def request_of(script: str, args: Sequence[str | int]) -> Entry:
    """Return the fields of a request that matter here, from the arguments of its script."""
    own = list(map(str, args[COMMON:]))
    request: Entry = {"script": script, "caller_ms": int(args[CALLER_MS])}
    version, _, incarnation = str(args[SEEN]).partition("@")
    request |= {"seen_incarnation": incarnation, "seen_version": int(version or 0)}
    match script:
        case "claim":
            return request | {"token": own[0], "outage_ms": int(own[2]), "wants_lane": WANTS_LANE in own[3]}
        case "renew":
            return request | {"token": own[0], "pending": own[3]} | lease_of(own[2])
        case "release":
            # a digit for each lane; empty: unknown
            is_killed = own[3] == "killed"
            request |= {"token": own[0], "pending": own[2], "opened": "" if is_killed else own[3]} | lease_of(own[1])
            return request | {"reclaimed": is_killed}
    return request


def lease_of(text: str) -> Entry:
    """Return the fields of the lease that a request presents."""
    worker, until, outage, incarnation, renewal_id, *lanes = text.split(",")
    names = {"renewal_id": renewal_id, "incarnation": incarnation, "lanes_ms": list(map(int, lanes))}
    return names | {"worker": int(worker), "until_ms": int(until), "outage_ms": 0 if outage == "-" else int(outage)}


def flat(reply: Sequence[str]) -> list[str]:
    """Return a reply with the fields of the pool and of the lease apart; one that is so already is returned as it is.

    status, Redis time, incarnation, version, floor, alarm; then, of a grant: worker id, until, lanes, renewal id, end
    of the outage lane; of a renewal: until, adopted, beginning of the last lane, end of the outage lane.
    """
    status, *fields = reply
    if len(fields) < 4 or "@" not in fields[1]:
        return list(reply)
    now, seen, floor, alarm, *own = fields
    version, _, incarnation = seen.partition("@")
    if status in ("granted", "renewed"):
        worker, until, outage, _, renewal_id, *lanes = own[0].split(",")
        outage = "0" if outage == "-" else outage
        if status == "granted":
            own = [worker, until, ",".join(lanes), renewal_id, outage]
        else:
            own = [until, own[1], lanes[-1], outage]
    return [status, now, incarnation, version, floor, alarm, *own]


def ints(text: str) -> list[int]:
    return [int(item) for item in text.split(",") if item]


def read_log(path: Path) -> Iterator[list[Entry]]:
    """Yield the entries of each run of a log, one run after the other."""
    entries: list[Entry] = []
    with path.open() as file:
        for line in file:
            entry = json.loads(line)
            if reply := entry.get("reply"):
                entry["reply"] = flat(reply)
            if entry["do"] == "begin" and entries:
                yield entries
                entries = []
            entries.append(entry)
    if entries:
        yield entries
