"""Ids are spread evenly over shards by `id % n`, whatever their rate, and a tick that is needed is whole."""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import pytest

import snowredis
from snowredis.core.lanes import first_sequence
from snowredis.settings import SequenceStart
from snowredis.testing import ManualClock, memory_pool

# with hashes that are less good, ids are uneven by 360 and 839
SHARDS = [*range(2, 65), 100, 128, 256, 360, 512, 839, 1000, 1021, 1024]
POWERS = [shards for shards in SHARDS if shards & (shards - 1) == 0]
COUNT = 12_000


def gaps_ms(rate: float, rng: random.Random) -> Iterator[float]:
    while True:
        yield rng.expovariate(rate / 1000)


def every(ms: float) -> Iterator[float]:
    while True:
        yield ms


def ids_at(gaps: Iterator[float], count: int = COUNT, start: SequenceStart = "spread") -> list[int]:
    clock = ManualClock()
    made = []
    with snowredis.connect(memory_pool(clock=clock), sequence_start=start) as ids:
        for _ in range(count):
            clock.advance(next(gaps))
            made.append(ids.next_id())
    return made


def is_even(ids: list[int], shards: int) -> bool:
    """Return whether chi-square of `id % shards` is as low as in all but one of a million even distributions."""
    counts, mean = Counter(an_id % shards for an_id in ids), len(ids) / shards
    chi_square = sum((counts[shard] - mean) ** 2 for shard in range(shards)) / mean
    # by the approximation of Wilson and Hilferty, its cube root is normally distributed, also for few shards
    freedom = shards - 1
    deviations = ((chi_square / freedom) ** (1 / 3) - 1 + 2 / (9 * freedom)) / (2 / (9 * freedom)) ** 0.5
    return bool(deviations < 4.75)


RATES: dict[str, Callable[[], Iterator[float]]] = {
    "1 id/s": lambda: gaps_ms(1, random.Random(1)),
    "1 id/s, to the ms": lambda: every(1000),
    "1 id/min, to the ms": lambda: every(60_000),
    "100 ids/s": lambda: gaps_ms(100, random.Random(2)),
    "100 ids/s, to the ms": lambda: every(10),
    "1,000 ids/s, to the ms": lambda: every(1),
    "10,000 ids/s": lambda: gaps_ms(10_000, random.Random(3)),
    "the ceiling": lambda: every(0),
}


@pytest.mark.parametrize("rate", RATES)
def test_shards_get_equally_many_ids_at_any_rate(rate: str) -> None:
    # whole ticks at the ceiling; a heartbeat for each id takes long
    ids = ids_at(RATES[rate](), {"the ceiling": 20 * 1024, "1 id/min, to the ms": 2_000}.get(rate, COUNT))
    assert ids == sorted(set(ids))
    # exact distances are a pattern of their own: the time of an id a minute is the same modulo 100
    among: Sequence[int] = POWERS if rate.endswith("to the ms") else SHARDS
    if rate == "10,000 ids/s":
        # the ten of a tick follow each other: by more shards, chi-square of random ones is higher, too
        among = range(2, 17)
    assert [shards for shards in among if not is_even(ids, shards)] == []


def test_without_spreading_quiet_services_fill_one_shard() -> None:
    assert not is_even(ids_at(RATES["1 id/s"](), 1000, "zero"), 2)


@pytest.mark.parametrize("per_ms", [0.01, 1, 10])
def test_the_first_ids_of_pairs_are_spread_too(per_ms: float) -> None:
    def gaps() -> Iterator[float]:
        while True:
            yield from (1 / per_ms, 0)

    ids = ids_at(gaps())[::2]
    # chi-square does not fit: the pairs of one tick follow each other
    for shards in (2, 4, 8, 16):
        counts = Counter(an_id % shards for an_id in ids)
        assert min(counts[shard] for shard in range(shards)) > 0.6 * len(ids) / shards


def test_a_process_that_needs_every_tick_has_all_of_each() -> None:
    clock = ManualClock()
    with snowredis.connect(memory_pool(clock=clock), sequence_start="spread") as ids:
        ids.next_id()
        began_ms = clock.time_ns() / 1e6
        ids.next_ids(100_000)
        # one more tick than whole ones at most: the first
        assert clock.time_ns() / 1e6 - began_ms <= 100_000 / 1024 + 1


def test_a_process_that_makes_many_ids_in_each_tick_does_not_wait() -> None:
    clock = ManualClock()
    with snowredis.connect(memory_pool(clock=clock), sequence_start="spread") as ids:
        waited = []
        for _ in range(200):
            clock.advance(1)
            before = clock.time_ns()
            for _ in range(900):
                ids.next_id()
            waited.append(clock.time_ns() > before)
    # nothing waited after the first ticks: after each of them, it is a quiet service once more with a chance of 1 in 4
    assert not any(waited[20:])


@pytest.mark.parametrize("count", [2, 100, 1024])
def test_a_batch_that_fits_a_tick_is_not_divided(count: int) -> None:
    clock = ManualClock()
    with snowredis.connect(memory_pool(clock=clock), sequence_start="spread") as ids:
        ids.next_id()
        for _ in range(300):
            clock.advance(7)
            batch = ids.next_ids(count)
            assert batch[-1] - batch[0] == count - 1


def test_first_sequences_stay_in_their_range() -> None:
    for bits in (0, 1, 10, 31):
        found = {first_sequence(tick, (1 << bits) - 1, 0x7FFFFFFF) for tick in range(1 << 41, (1 << 41) + 200)}
        assert 0 <= min(found) <= max(found) < 1 << bits
