"""Libraries that are measured, each with the statement that its own documentation recommends."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scripts._bench.measuring import BASE, UNCAPPED, Subject
from snowredis.testing import memory_pool

# name of our contestants, which are measured with the implementation in C and with the one in Python
OURS = "snowredis"
BATCH, BUFFER = 1_000, 1_000_000
# the process' generator, with one lookup
BY_NAME = "next_id()"
# the least that an id can cost which contains the time
FLOOR, METHOD_FLOOR = "now_int()", "clock.now_int()"
# named in comparisons, but to be had from no package index; with what is known of it
NOT_INSTALLABLE = {"yitter": "its Python port is source in a repository, on PyPI there is none"}


@dataclass(frozen=True, slots=True)
class Contestant:
    """One statement of one package; *setup* makes the names in it, and raises ImportError without the package."""

    statement: str
    package: str
    setup: str = ""
    # whether threads may share it: read in its source, or it keeps no state of its own
    thread_safe: bool = True
    per_call: int = 1
    # those that threads may not share, and coroutines, are measured on one
    threads: Sequence[int] = (1, 4)
    # a layout of 4,096 ids a ms would be the subject otherwise: it says None, or sleeps, when they are used up
    calls: int | None = None
    name: str = ""

    @property
    def label(self) -> str:
        return self.name or self.statement


# SERVER and LAYOUT are names that Field.prepared() adds
_IDS = "import snowredis; ids = snowredis.connect(SERVER, pool='default', layout=LAYOUT); ids.next_id()"
_DEFAULT_IDS = "import snowredis; ids = snowredis.connect(SERVER, pool='default', layout='default'); ids.next_id()"
_BUFFER = "from array import array; buffer = array('q', bytes(8 * {}))"
CONTESTANTS: tuple[Contestant, ...] = (
    Contestant(BASE, "", "import time"),
    Contestant(FLOOR, "", f"from scripts._bench.floor import {FLOOR.removesuffix('()')}"),
    Contestant(METHOD_FLOOR, "", "from scripts._bench.floor import clock"),
    Contestant("ids.next_id()", OURS, _IDS),
    Contestant(
        "snowredis.next_id()",
        OURS,
        "import snowredis; snowredis.configure(url=SERVER, pool='default', layout=LAYOUT); snowredis.next_id()",
    ),
    # takes ids of the generator that the one before has configured; imported as the functions of other libraries are
    Contestant(BY_NAME, OURS, "from snowredis import next_id; next_id()"),
    # fewer than the 1,024 ids that the default layout has in a ms
    Contestant("ids.next_id()", OURS, _DEFAULT_IDS, threads=(1,), calls=900, name="ids.next_id(), default layout"),
    Contestant(f"ids.next_ids({BATCH})", OURS, _IDS, per_call=BATCH, name=f"ids.next_ids({BATCH:,}), an id"),
    Contestant(
        "ids.fill(buffer)",
        OURS,
        f"{_IDS}; {_BUFFER.format(BATCH)}",
        per_call=BATCH,
        name=f"ids.fill() of {BATCH:,}, an id",
    ),
    Contestant(
        "ids.fill(buffer)",
        OURS,
        f"{_IDS}; {_BUFFER.format(BUFFER)}",
        per_call=BUFFER,
        name=f"ids.fill() of {BUFFER:,}, an id",
    ),
    Contestant("await ids.anext_id()", OURS, _IDS, threads=(1,)),
    # Snowflakes, in Python all of them
    Contestant(
        "next(gen)",
        "snowflake-id",
        "from snowflake.snowflake import SnowflakeGenerator; gen = SnowflakeGenerator(42)",
        thread_safe=False,
        threads=(1,),
        calls=3_000,
    ),
    Contestant(
        "gen.get_next_id()",
        "pysnowflake",
        "from snowflake.server.generator import Generator; gen = Generator(1, 1)",
        thread_safe=False,
        threads=(1,),
        calls=3_000,
    ),
    Contestant("TSID.create()", "tsidpy", "from tsidpy import TSID"),
    Contestant("sf.next_id()", "sonyflake-py", "from sonyflake import SonyFlake; sf = SonyFlake(machine_id=lambda: 1)"),
    Contestant(
        "await gen.generate()",
        "snowflakekit",
        "from snowflakekit import SnowflakeConfig, SnowflakeGenerator; "
        "gen = SnowflakeGenerator(SnowflakeConfig(epoch=1723323246031))",
        thread_safe=False,
        threads=(1,),
    ),
    # 128 bits, in order of time
    Contestant("ulid_now_bytes()", "ulid-transform", "from ulid_transform import ulid_now_bytes"),
    Contestant("ulid_now()", "ulid-transform", "from ulid_transform import ulid_now"),
    Contestant("ULID()", "python-ulid", "from ulid import ULID"),
    Contestant("uuid_utils.uuid7()", "uuid-utils", "import uuid_utils"),
    Contestant("fastuuid.uuid7()", "fastuuid", "import fastuuid"),
    Contestant("uuid6.uuid7()", "uuid6", "import uuid6"),
    Contestant("uuid.uuid7()", "", "import uuid\nif not hasattr(uuid, 'uuid7'): raise ImportError"),
    Contestant("ksuid()", "cyksuid", "from cyksuid.v2 import ksuid"),
    # random
    Contestant("uuid_utils.uuid4()", "uuid-utils", "import uuid_utils"),
    Contestant("fastuuid.uuid4()", "fastuuid", "import fastuuid"),
    Contestant("uuid.uuid4()", "", "import uuid"),
    Contestant("nanoid.generate()", "nanoid", "import nanoid"),
    Contestant("secrets.randbits(63)", "", "import secrets"),
    Contestant("random.getrandbits(63)", "", "import random"),
)
BY_LABEL: Mapping[str, Contestant] = {contestant.label: contestant for contestant in CONTESTANTS}


class AwaitedSubject(Subject):
    """Subject whose statement begins with ``await``; on one thread, in an event loop of its own."""

    __slots__ = ()

    def ns(self, calls: int) -> float:
        import asyncio

        source = f"""
            async def run():
                began = perf_counter()
                for _ in repeat(None, {calls}):
                    {self.statement}
                return perf_counter() - began
        """
        names = dict(self.names)
        exec("from itertools import repeat; from time import perf_counter", names)  # noqa: S102
        exec(inspect.cleandoc(source), names)  # noqa: S102 - as timeit does
        seconds: float = asyncio.run(names["run"]())
        return seconds * 1e9 / calls


@dataclass(slots=True)
class Field:
    """Libraries that can be measured in this process, and those that cannot, with the reason."""

    names: dict[str, dict[str, Any]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    @classmethod
    def prepared(cls, *, only_ours: bool, url: str = "", layout: str = UNCAPPED) -> Field:
        """Import and set up every library; a package that is not installed is no error.

        Args:
            only_ours: leave the other libraries out.
            url: of the Redis in which snowredis has its leases; empty: in memory.
            layout: of snowredis' ids.
        """
        made = cls()
        for contestant in CONTESTANTS:
            if only_ours and contestant.package != OURS and contestant.statement != BASE:
                continue
            names: dict[str, Any] = {"SERVER": url or memory_pool(), "LAYOUT": layout}
            try:
                exec(contestant.setup, names)  # noqa: S102 - of the list above
                if not contestant.statement.startswith("await "):
                    exec(contestant.statement, names)  # noqa: S102
            except ImportError as error:
                made.missing[contestant.label] = str(error) or "not in this Python"
            except Exception as error:  # noqa: BLE001 - whatever a peer raises is why it is not measured
                made.missing[contestant.label] = f"{type(error).__name__}: {error}"
            else:
                made.names[contestant.label] = names
        return made

    def subject(self, label: str, threads: int) -> Subject:
        contestant = BY_LABEL[label]
        kind = AwaitedSubject if contestant.statement.startswith("await ") else Subject
        return kind(contestant.statement, self.names[label], threads, contestant.per_call)
