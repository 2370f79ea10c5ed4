"""`workers`, `events`, `doctor` and `metrics`: who is in a pool, what happened there, and what is wrong.

They only read.
"""

from __future__ import annotations

import argparse
import sys

from snowredis.cli.exit_codes import ExitCode, code_of, print_error
from snowredis.cli.options import Command, Parser, open_known_pool, open_pool, settings
from snowredis.cli.output import printable, show, show_conditions, show_status

# --- workers ------------------------------------------------------------------------------------

_COLUMNS = "worker state host pid label heartbeat_at ends_at ids_until ids_made ids_per_second clock_offset_ms refused "
_COLUMNS += "version"
# leases that ended, the newest of them
MOST_ENDED = 20


def _workers(args: argparse.Namespace) -> None:
    """Show which process has which worker id, and which leases ended without a release.

    Ids, rate and clock are as of the last heartbeat. State: alive, no-ids (it sends heartbeats, and gets no ids),
    silent (no heartbeat for two thirds of a ttl), expired (the lease ended without a release), died (another process
    found its process dead). Ended ones are listed for an hour, or as long as they may have ids.

    examples:
      snowredis workers                               of the only pool
      watch snowredis workers --pool orders           every 2 s
      snowredis workers --json | jq '.leases[].host'  for programs
    """
    from snowredis.monitor.conditions import status_of
    from snowredis.monitor.pool_monitor import Reading

    with open_known_pool(args) as pool:
        snapshot = pool.snapshot()
    status, info = status_of(snapshot), snapshot.info
    if args.json:
        show(Reading(status, snapshot), "", as_json=True)
        return
    print(f"pool {info.name} at {printable(pool.where)}: {info.used:,} of {info.capacity:,} worker ids are leased")
    show_status(status)
    if snapshot.leases:
        show([*snapshot.living, *snapshot.ended[:MOST_ENDED]], _COLUMNS, now_ms=info.now_ms)
    if len(snapshot.ended) > MOST_ENDED:
        print(f"… and {len(snapshot.ended) - MOST_ENDED:,} more that ended: --json has all")


WORKERS = Command("workers", _workers, Parser.add_redis, json="one object")

# --- events -------------------------------------------------------------------------------------

# what people see; `tail` has other numbers
NEWEST_EVENTS = 20
_EVENT_COLUMNS = "at kind worker host pid label text until stats.ids_made stats.clock_offset_ms"


def _events(args: argparse.Namespace) -> None:
    """Show the events of a pool.

    Shows the newest 20; with --json all that are kept, about 20,000. Times are those of the Redis clock, in UTC.

    examples:
      snowredis events --pool orders                        the newest 20
      watch snowredis events --pool orders                  every 2 s
      snowredis events --json | jq 'select(.worker == 17)'  one id
    """
    with open_known_pool(args) as pool:
        # raises PoolNotFound, where events() returns none
        pool.info()
        events = pool.events(newest=None if args.json else NEWEST_EVENTS)
    if events:
        show(events, _EVENT_COLUMNS, as_json=args.json)


EVENTS = Command("events", _events, Parser.add_redis, json="one JSON object per line, of all events that are kept")

# --- doctor -------------------------------------------------------------------------------------


def _doctor(args: argparse.Namespace) -> int:
    """Check for known problems, and show how to fix them.

    Checks this host, Redis, its pools and tags; changes nothing. Exits with 0 if it finds no problem, with 1 if there
    are warnings, with 4 if Redis does not answer, and with 9 if there are critical problems.

    examples:
      snowredis doctor                host, Redis and pools
      snowredis doctor --pool orders  this pool alone
    """
    from snowredis.monitor.conditions import worst
    from snowredis.monitor.doctor import diagnose

    url, options = settings(args, looks=True)
    found = diagnose(url, options.get("pool"))
    code = {"critical": ExitCode.FOUND_ERRORS, "warning": ExitCode.ERROR}.get(worst(found), ExitCode.OK)
    if any(each.code == "redis" and each.level == "critical" for each in found):
        code = ExitCode.REDIS_UNAVAILABLE
    if args.json:
        show(found, "", as_json=True)
    else:
        show_conditions(found, counts=True)
    return code


DOCTOR = Command("doctor", _doctor, Parser.add_redis, json="one JSON object per line")

# --- metrics ------------------------------------------------------------------------------------


def _metrics(args: argparse.Namespace) -> int:
    """Print a pool's metrics for Prometheus.

    For node_exporter's textfile collector, or to read; `snowredis serve` serves them at /metrics.

    examples:
      snowredis metrics --pool orders                   the text format
      snowredis metrics | sponge /var/node/orders.prom  from cron
    """
    from snowredis.monitor.metrics import as_text, samples_of_pools

    with open_pool(args) as pool:
        reading = pool.read()
    # that a pool cannot be read is a metric, too
    sys.stdout.write(as_text(samples_of_pools({pool.name: reading})))
    if reading.error is None:
        return ExitCode.OK
    print_error(reading.error)
    return code_of(reading.error)


METRICS = Command("metrics", _metrics, Parser.add_redis)
