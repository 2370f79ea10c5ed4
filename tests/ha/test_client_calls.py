"""Calls of snowredis' own clients to real servers: forks, silent nodes, and no imports or reads of files meanwhile."""

import contextlib
import multiprocessing
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import snowredis
from snowredis.servers.clients import client_of_url
from snowredis.snowflake.protocol.administration import PoolAdministration
from snowredis.snowflake.protocol.pool_config import PoolConfig
from tests.support.ha import MASTER, Cluster, Node, running
from tests.support.pools import new_pool
from tests.support.ports import free_port
from tests.support.programs import finished
from tests.support.waiting import eventually

KINDS = ["redis", "unix", "sentinel", "cluster"]
# most time until a reply that is there is read, on a busy machine
LIMIT_S = 20.0


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Return the URL of a server of each kind; one server, except for the Cluster of one node."""
    directory = tmp_path_factory.mktemp("k")
    path = directory / "redis.sock"
    master = Node(directory / "m", "--unixsocket", str(path))
    sentinel = Node(directory / "s", sentinel=True)
    lines = [f"port {sentinel.port}", "bind 127.0.0.1", f"sentinel monitor {MASTER} 127.0.0.1 {master.port} 1"]
    (sentinel.directory / "sentinel.conf").write_text("\n".join(lines) + "\n")
    alone = Node(directory / "c", "--cluster-enabled", "yes", "--cluster-port", str(free_port()))
    with running([master, sentinel, alone]):
        alone.ask("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        eventually(lambda: "cluster_state:ok" in alone.ask("CLUSTER", "INFO"), "the Cluster")
        # a name, so that it has to be resolved
        yield {
            "redis": f"redis://localhost:{master.port}/0",
            "unix": f"unix://{path}",
            "sentinel": f"sentinel://localhost:{sentinel.port}/{MASTER}/0",
            "cluster": f"cluster://localhost:{alone.port}",
        }


# --- imports and files -----------------------------------------------------------------------------

CALLS = Path(__file__).parent / "programs" / "client_calls.py"


@pytest.mark.parametrize("kind", KINDS)
def test_no_module_is_imported_and_no_file_opened_from_claim_to_release(urls: dict[str, str], kind: str) -> None:
    # another thread may fork in the middle of it, and the child would inherit the import system's locks; files of the
    # kernel and of the crash record are in memory, and opened without a lock
    name = new_pool(urls[kind], failover_slack=0)
    done = finished(CALLS, urls[kind], name, forked=False)
    assert (done.stdout, done.stderr) == ("", "")


# --- forks -----------------------------------------------------------------------------------------


@contextlib.contextmanager
def forked_child(work: Callable[[], object]) -> Iterator[None]:
    """Fork a child that calls *work*; at the end of the block it has ended without an error."""
    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    try:
        yield
        child.join(LIMIT_S)
        assert child.exitcode == 0
    finally:
        child.kill()


def locks_of(thing: object, found: dict[int, Any], depth: int = 6) -> dict[int, Any]:
    """Return every lock that can be reached from *thing* by attributes, lists and dicts."""
    if id(thing) in found or depth < 0:
        return found
    if type(thing).__name__ in ("RLock", "lock"):
        found[id(thing)] = thing
        return found
    inside: list[object] = []
    if isinstance(thing, dict):
        inside = list(thing.values())
    elif isinstance(thing, list | tuple | set):
        inside = list(thing)
    elif type(thing).__module__.startswith(("redis.", "snowredis.")):
        inside = list(getattr(thing, "__dict__", {}).values())
    for part in inside:
        locks_of(part, found, depth - 1)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_a_child_needs_no_lock_and_closes_no_socket_of_its_parents_client(urls: dict[str, str], kind: str) -> None:
    client = client_of_url(urls[kind])
    store = PoolAdministration(client, PoolConfig(name="locks", failover_slack_ms=0))
    store._owned = True
    with contextlib.closing(store):
        assert store.stored("signature") == ""
        # what monitoring asks: for a Cluster, the client of redis-py behind ours
        store._client.exists("x")
        held, forked = threading.Event(), threading.Event()

        def hold_all() -> None:
            with contextlib.ExitStack() as stack:
                for lock in locks_of(store._client, {}).values():
                    stack.enter_context(lock)
                held.set()
                forked.wait(LIMIT_S)

        holding = threading.Thread(target=hold_all)
        holding.start()
        held.wait(LIMIT_S)

        def work() -> None:
            old = store._client
            store.after_fork()
            assert store.stored("signature") == ""
            # as the end of the interpreter does
            from snowredis.servers import clients

            clients._inherited.clear()
            del old

        with forked_child(work):
            forked.set()
            holding.join()
        # on the same connections
        assert store.stored("signature") == ""


def test_a_child_that_was_forked_while_the_slots_were_looked_for_gets_ids(slots: Cluster) -> None:
    name = new_pool(slots.url, failover_slack=0)
    ids = snowredis.connect(slots.url, pool=name, failover_slack=0)
    with contextlib.closing(ids):
        ids.next_id()
        for node in slots.nodes:
            # no node answers for so long, and the Cluster itself goes on
            node.ask("CLIENT", "PAUSE", 2500, "ALL")
        renewing = threading.Thread(target=ids._beat)
        renewing.start()
        # the renewal has timed out after 1 s, and now nodes are asked for the slots
        time.sleep(1.3)

        def work() -> None:
            while True:
                with contextlib.suppress(snowredis.StoreUnavailable):
                    ids.next_id()
                    return

        with forked_child(work):
            renewing.join()


# --- silent servers --------------------------------------------------------------------------------


@pytest.fixture
def silent() -> Iterator[list[socket.socket]]:
    """Servers that accept connections, in the kernel, and never reply."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(6)]


def was_asked(server: socket.socket) -> bool:
    server.setblocking(False)
    try:
        server.accept()[0].close()
    except BlockingIOError:
        return False
    return True


def test_one_time_limit_is_over_a_whole_call_however_many_nodes_are_silent(
    urls: dict[str, str], silent: list[socket.socket]
) -> None:
    nodes = [f"127.0.0.1:{server.getsockname()[1]}" for server in silent]
    url = f"cluster://{','.join(nodes)},{urls['cluster'].removeprefix('cluster://')}"
    store = PoolAdministration(url, PoolConfig(name="silent"))
    with contextlib.closing(store):
        with pytest.raises(snowredis.StoreUnavailable, match="no node answered"):
            store.stored("signature")
        # each has half a second, and the call two
        assert 0 < sum(map(was_asked, silent)) <= 4
        # the next one begins with those that were not asked
        assert store.stored("signature") == ""
