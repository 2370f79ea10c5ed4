"""Table of the part `start`."""

from __future__ import annotations

from scripts._bench.tables import Results, markdown, number, spread


def start(results: Results) -> str:
    found = results["start"]
    rows = [[f"`{name}`" if name.startswith("import") else name, spread(ms)] for name, ms in found["more_ms"].items()]
    first = found["first_id"]
    table = markdown([f"over `python -c ''`, which takes {number(found['bare_ms'][1])} ms", "ms"], rows)
    return (
        f"{table}\n\n`python app.py`, with a redis-server on a unix socket, has its first id after "
        f"{number(first['ready_ms'][1])} ms: {spread(first['ready_ratio'])} times `python -c 'import redis'` in all, "
        f"{spread(first['ready_to_ready'])} times until redis is imported. With its exit it takes "
        f"{number(first['ms'][1])} ms: {spread(first['ratio'])} times; in CPU time {spread(first['cpu_ratio'])}.\n\n"
        f"A generator takes {found['made_bytes'] / 1000:,.0f} kB of Python objects, "
        f"{found['claimed_bytes'] / 1000:,.0f} kB with its lease, its connection and its heartbeat thread "
        f"({found['threads']:.0f} a generator); the process grows by {found['resident_bytes'] / 1000:,.0f} kB."
    )
