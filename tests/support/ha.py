"""Several real servers on loopback: a master with replicas, with Sentinels, a Cluster; and operations on them."""

import contextlib
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

import pytest
import redis

import snowredis
from snowredis.core.layout import Layout
from snowredis.snowflake.generator import SnowflakeGenerator
from snowredis.snowflake.lease.held import OwnLease
from tests.support import waiting
from tests.support.ports import free_port
from tests.support.servers import PROGRAM, RedisServer

# a busy machine starts a server within a second, and a Cluster or three Sentinels agree within ten
START_LIMIT_S = 20.0
MASTER = "mymaster"


# from a port of a server to that of its Cluster bus: Redis 6.2 cannot use another
BUS = 10_000
# a Redis that does not reply counts as a no
eventually = partial(waiting.eventually, ignored=(redis.RedisError,))


class Node(RedisServer):
    """One server process on a port of loopback."""

    def __init__(self, directory: Path, *options: str, port: int = 0, sentinel: bool = False) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        super().__init__(directory, *options)
        self.port = port or free_port()
        self._sentinel = sentinel

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"redis://{self.address}/0"

    def client(self) -> redis.Redis:
        return redis.Redis(port=self.port, decode_responses=True, socket_timeout=2, socket_connect_timeout=2)

    def ask(self, *command: str | int) -> Any:
        with contextlib.closing(self.client()) as client:
            return client.execute_command(*command)

    def info(self, section: str) -> dict[str, Any]:
        with contextlib.closing(self.client()) as client:
            return dict(client.info(section))

    def arguments(self) -> list[str]:
        if self._sentinel:
            return [str(self.directory / "sentinel.conf"), "--sentinel"]
        return ["--port", str(self.port), "--bind", "127.0.0.1", *self._common, *self._options]


@contextlib.contextmanager
def running(nodes: Sequence[Node]) -> Iterator[None]:
    if PROGRAM is None:
        pytest.skip("no redis-server or valkey-server on PATH")
    try:
        for node in nodes:
            node.start()
        yield
    finally:
        for node in nodes:
            node.kill()


class Replicated:
    """A master with two replicas."""

    def __init__(self, directory: Path) -> None:
        at_once = ("--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1")
        self.master = Node(directory / "m", *at_once)
        to_master = ("--replicaof", "127.0.0.1", str(self.master.port), *at_once)
        self.replicas = [Node(directory / f"r{i}", *to_master) for i in range(2)]
        self.nodes = [self.master, *self.replicas]

    def wait_for_replicas(self) -> None:
        def online() -> bool:
            info = self.master.info("replication")
            return [info.get(f"slave{i}", {}).get("state") for i in range(2)] == ["online"] * 2

        def acknowledged() -> bool:
            with contextlib.closing(self.master.client()) as client:
                # on one connection; a replica that is online does not acknowledge at once
                pipe = client.pipeline(transaction=False).set("ready", 1)
                return bool(pipe.execute_command("WAIT", 2, 500).execute()[1] == 2)

        eventually(online, "two replicas", START_LIMIT_S)
        eventually(acknowledged, "acknowledgements of two replicas", START_LIMIT_S)


class Sentinels(Replicated):
    """A master with two replicas and three Sentinels, which notice within a second that the master is gone."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.sentinels = [Node(directory / f"s{i}", sentinel=True) for i in range(3)]
        for node in self.sentinels:
            lines = [
                f"port {node.port}",
                "bind 127.0.0.1",
                f"dir {node.directory}",
                f"sentinel monitor {MASTER} 127.0.0.1 {self.master.port} 2",
                f"sentinel down-after-milliseconds {MASTER} 1000",
                f"sentinel failover-timeout {MASTER} 3000",
            ]
            (node.directory / "sentinel.conf").write_text("\n".join(lines) + "\n")

    @property
    def url(self) -> str:
        return f"sentinel://{','.join(node.address for node in self.sentinels)}/{MASTER}/0"

    def wait_for_sentinels(self) -> None:
        def agreed() -> bool:
            for node in self.sentinels:
                with contextlib.closing(node.client()) as client:
                    state: Any = client.sentinel_master(MASTER)
                if int(state["num-slaves"]) != 2 or int(state["num-other-sentinels"]) != 2:
                    return False
            return True

        eventually(agreed, "three Sentinels that know each other", START_LIMIT_S)

    def master_port(self) -> int:
        for node in self.sentinels:
            with contextlib.suppress(redis.RedisError):
                return int(node.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER)[1])
        return 0


@contextlib.contextmanager
def sentinels(directory: Path) -> Iterator[Sentinels]:
    made = Sentinels(directory)
    with running(made.nodes):
        made.wait_for_replicas()
        with running(made.sentinels):
            made.wait_for_sentinels()
            yield made


class Cluster:
    """Three masters with a third of the slots each; the first has a replica."""

    def __init__(self, directory: Path) -> None:
        self.nodes = [
            Node(
                directory / f"c{i}",
                *("--cluster-enabled", "yes", "--cluster-node-timeout", "1000"),
                *("--cluster-require-full-coverage", "no", "--repl-diskless-sync-delay", "0"),
                port=free_port(also=BUS),
            )
            for i in range(4)
        ]

    @property
    def url(self) -> str:
        return f"cluster://{','.join(node.address for node in self.nodes[:3])}"

    def join(self) -> None:
        first, bounds = self.nodes[0], [0, 5461, 10923, 16384]
        for i, node in enumerate(self.nodes):
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", i + 1)
            if i < 3:
                node.ask("CLUSTER", "ADDSLOTS", *range(bounds[i], bounds[i + 1]))
            if i > 0:
                first.ask("CLUSTER", "MEET", "127.0.0.1", node.port)
        eventually(lambda: all(self._known(node) for node in self.nodes), "a Cluster", START_LIMIT_S)
        master_id = first.ask("CLUSTER", "MYID")
        eventually(lambda: master_id in self.nodes[3].ask("CLUSTER", "NODES"))
        eventually(lambda: self.nodes[3].ask("CLUSTER", "REPLICATE", master_id))
        eventually(
            lambda: first.info("replication").get("slave0", {}).get("state") == "online",
            "a replica online",
            START_LIMIT_S,
        )
        # those who vote have to know whose replica it is
        shown = f"slave {master_id}"
        eventually(
            lambda: all(shown in node.ask("CLUSTER", "NODES") for node in self.nodes), "a known replica", START_LIMIT_S
        )

    @staticmethod
    def _known(node: Node) -> bool:
        info = node.ask("CLUSTER", "INFO")
        return "cluster_state:ok" in info and "cluster_known_nodes:4" in info


@contextlib.contextmanager
def cluster(directory: Path) -> Iterator[Cluster]:
    made = Cluster(directory)
    with running(made.nodes):
        made.join()
        yield made


class Maker:
    """Thread that makes an id every few ms, and records errors.

    Attributes:
        ids: all of them, in order.
        errors: of next_id().
        workers: worker ids in the order in which they were used.
    """

    def __init__(self, generator: SnowflakeGenerator, every_s: float = 0.003) -> None:
        self.generator = generator
        self.ids: list[int] = []
        self.errors: list[Exception] = []
        self._every_s = every_s
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def workers(self) -> list[int]:
        return list(dict.fromkeys(self.generator.decode(an_id).worker for an_id in list(self.ids)))

    @property
    def lease(self) -> OwnLease:
        lease = self.generator.lease
        assert lease is not None
        return lease

    def wait_for_ids(self, count: int) -> None:
        """Wait until *count* more ids are made."""
        wanted = len(self.ids) + count
        eventually(lambda: len(self.ids) >= wanted, f"{count} more ids")

    def wait_for_adoption(self, before: OwnLease) -> None:
        """Wait until a Redis that has lost *before*, or another Redis, has adopted the lease."""
        eventually(lambda: self.lease.incarnation != before.incarnation, what="adoption")
        assert self.lease.worker == before.worker

    def __enter__(self) -> Self:
        self.generator.next_id()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(10)
        self.generator.close()

    def _run(self) -> None:
        while not self._stopped.wait(self._every_s):
            try:
                self.ids.append(self.generator.next_id())
            except snowredis.SnowredisError as error:
                self.errors.append(error)


def first_id(generator: SnowflakeGenerator, limit_s: float) -> int:
    """Return the first id; while the server is unavailable, try again."""
    unavailable = (snowredis.StoreUnavailable, snowredis.LeaseExpired)
    made: int = eventually(generator.next_id, "an id", limit_s, ignored=unavailable)
    return made


def assert_no_id_twice(*many: list[int]) -> None:
    made = Counter(an_id for ids in many for an_id in ids)
    assert made.total() == len(made), made.most_common(5)


# worker ids are few, so that heirs get what others had
FEW = Layout(timestamp_bits=41, backup_bits=0, worker_bits=2, sequence_bits=10)
