"""Once the exit of the interpreter has begun, no thread is started, and those that were started run before its end."""

import snowredis
from snowredis.snowflake.protocol.pool_config import PoolConfig
from tests.support.programs import finished
from tests.support.servers import RedisServer

# exit handlers run in the reverse order: "late" is registered before the first thread is started, "early" after it
PROGRAM = """
import asyncio, atexit, sys, threading, snowredis
from snowredis.process import threads
connect = lambda: snowredis.connect(sys.argv[1], pool="p", claim_timeout=5)
made = []
def make(when):
    ids = connect()
    made.append(ids)
    an_id = ids.next_id()
    beats = sum(thread.name == "snowredis-p" for thread in threading.enumerate())
    print(when, threads.may_start_threads(), an_id > 0, beats, asyncio.run(ids.anext_id()) > an_id)
atexit.register(make, "late")
make("before")
atexit.register(make, "early")
"""


def test_a_generator_that_is_made_at_exit_makes_ids_and_releases_its_lease_without_a_thread(
    own_server: RedisServer,
) -> None:
    pool = snowredis.WorkerPool(own_server.url, "p")
    pool.create(PoolConfig(name="p"))
    done = finished("-c", PROGRAM, own_server.url, forked=False)
    assert done.stdout.splitlines() == ["before True True 1 True", "early True True 2 True", "late False True 0 True"]
    assert (done.returncode, done.stderr) == (0, "")
    assert pool.info().claims == 3


SLOW = """
import _thread, os, time
from snowredis.process.threads import start_thread
start = _thread.start_new_thread
def slow(run, arguments):
    def late(*given):
        time.sleep(0.5)
        run(*given)
    return start(late, arguments)
_thread.start_new_thread = slow
# without print(): the interpreter aborts if a daemon thread holds the lock of stdout at its end
start_thread(lambda: os.write(1, b"runs\\n"), "late")
print("started", flush=True)
"""


def test_the_interpreter_waits_for_a_thread_that_was_started_and_does_not_run_yet() -> None:
    done = finished("-c", SLOW, forked=False)
    # the thread begins before the interpreter ends; what it does then may come too late
    assert (done.stdout.split()[0], done.stderr) == ("started", "")
