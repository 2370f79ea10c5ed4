"""Modules that a program loads before its first id: a reader pays for each."""

import sys

from scripts._docs.loaded import code_lines, loaded_modules, path_of
from snowredis.core.layout import Layout
from snowredis.servers.scripts import PROLOGUE
from snowredis.snowflake.protocol.pool_config import PoolConfig
from snowredis.snowflake.protocol.redis_store import SCRIPTS
from snowredis.worker_pool import WorkerPool
from tests.support.programs import finished
from tests.support.servers import RedisServer

# most that a process loads of snowredis if it connects, claims, makes ids, renews and closes: files, and lines of code
# in them, without comments, docstrings and blank lines. A package's file without code is none. A change that needs more
# says why
MOST_FILES, MOST_CODE_LINES = 41, 5_250
# makes an id, renews and releases; prints what this loaded: modules in addition to those of redis-py, and scripts
LIFE = """
import sys
import redis
opened, before = [], set(sys.modules)
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
import snowredis
with snowredis.connect(sys.argv[1], pool="what-runs") as ids:
    ids.next_id(), ids._beat()
print(*sorted(set(sys.modules) - before))
print(*sorted({name for name in opened if name.endswith(".lua")}))
"""
# modules of the standard library: for the page that forks wipe, host names, Lua files and records, and what redis-py
# loads when it connects; "_hmac" and "_sha2" where hashlib takes them from the interpreter, not from OpenSSL
STANDARD = {
    "_ctypes",
    "_hmac",
    "_sha2",
    "array",
    "ctypes",
    "dataclasses",
    "encodings",
    "hmac",
    "importlib",
    "mmap",
    "secrets",
    "stringprep",
    "unicodedata",
}


def test_a_process_that_claims_renews_and_releases_loads_what_the_page_counts_and_little_else(
    server: RedisServer,
) -> None:
    """docs/explanation/what-your-process-runs.md."""
    assert WorkerPool(server.url, "what-runs").create(PoolConfig(name="what-runs", layout=Layout()))
    done = finished("-c", LIFE, server.url, forked=False)
    modules, scripts = (line.split() for line in done.stdout.splitlines())
    assert [name for name in modules if name.partition(".")[0] == "snowredis"] == loaded_modules()
    assert {name.rpartition("/")[2].removesuffix(".lua") for name in scripts} == {*PROLOGUE, "pool", *SCRIPTS}
    roots = {name.partition(".")[0] for name in modules}
    assert roots & sys.stdlib_module_names <= STANDARD
    assert roots - sys.stdlib_module_names <= {"snowredis", "redis"}


def test_a_process_that_makes_ids_loads_no_more_than_it_did() -> None:
    paths = [path for path in map(path_of, loaded_modules()) if path.suffix == ".py"]
    lines = [code_lines(path.read_text("utf-8")) for path in paths]
    to_do = "import it when it is needed, or load less of something else"
    assert 20 < sum(map(bool, lines)) <= MOST_FILES, to_do
    assert 2_000 < sum(lines) <= MOST_CODE_LINES, to_do
