"""Parts of the datacenter that a layout names, and genes: bits of an id that come from a key."""

import hashlib
import pickle
from typing import Any

import pytest

import snowredis
from snowredis import ConfigError, Layout, LayoutError
from snowredis.core.layout import layout_spec
from snowredis.core.presets import resolve_layout
from snowredis.merge.proof import layout_ids
from snowredis.testing import ManualClock, memory_pool
from tests.support.pools import new_pool
from tests.support.servers import RedisServer

SPEC = "41/region:2,business:4/2/6/4;gene_bits=4"


@pytest.fixture
def layout() -> Layout:
    return resolve_layout(SPEC)


def test_a_layout_with_names_and_genes_is_a_value(layout: Layout) -> None:
    assert layout == Layout(
        datacenter_fields=(("region", 2), ("business", 4)), worker_bits=6, sequence_bits=4, gene_bits=4
    )
    assert resolve_layout(layout_spec(layout)) == layout == pickle.loads(pickle.dumps(layout))
    others = [resolve_layout(spec) for spec in ("41/6/2/6/4;gene_bits=4", "41/region:4,business:2/2/6/8")]
    assert len({layout, *others}) == len({str(each) for each in [layout, *others]}) == 3
    assert (layout.datacenter_bits, layout.sequences, layout.sequence_step, layout.total_bits) == (6, 16, 16, 63)
    assert layout.fields[-1] == ("gene", 4)


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("41/a:2,a:2/2/6/8", "each name once"),
        ("41/worker:2/2/6/8", "cannot name a part"),
        ("41/Region:2/2/6/8", "small letters"),
        ("41/a:0/2/6/8", "needs one at least"),
        ("41/a:2,b/2/6/8", "is not a number"),
        ("30/0/0/1/1;gene_bits=17", "out of range 0 .. 16"),
        ("41/0/2/10/8;gene_bits=4", "= 65 bits do not fit in 63"),
    ],
)
def test_names_and_widths_that_cannot_work_are_refused(spec: str, why: str) -> None:
    with pytest.raises((ConfigError, LayoutError), match=why):
        resolve_layout(spec)
    with pytest.raises(LayoutError, match="leave datacenter_bits out"):
        Layout(datacenter_bits=3, datacenter_fields=(("a", 2),), worker_bits=6)
    for bad in ("ab", (("a", 1.5),), (5,), {"a": 2}):
        with pytest.raises(LayoutError, match="pairs of a name and a width"):
            Layout(datacenter_fields=bad, worker_bits=6)  # type: ignore[arg-type]


def test_fields_are_those_of_the_pool_and_of_each_id(layout: Layout) -> None:
    pool = memory_pool()
    with snowredis.connect(pool, layout=layout, fields={"business": 7, "region": 1}) as ids:
        parts = ids.decode(ids.next_id())
        assert (parts.datacenter, parts.fields) == (0b01_0111, {"region": 1, "business": 7})
        # all processes of a pool have the same datacenter
        with pytest.raises(snowredis.LayoutMismatch, match="datacenter"):
            snowredis.connect(pool, layout=layout, fields={"business": 7, "region": 2}).next_id()
    for fields in ({"region": 1}, {"region": 1, "business": 16}, {"region": 1, "business": 1, "x": 0}):
        with pytest.raises(LayoutError):
            snowredis.connect(memory_pool(), layout=layout, fields=fields)
    for given in ({"fields": {"region": 1, "business": 2}, "datacenter": 3}, {"fields": 5}):
        with pytest.raises(ConfigError):
            snowredis.connect(memory_pool(), layout=layout, **given)


def test_ids_with_genes_are_unique_and_in_order_beside_others(layout: Layout) -> None:
    clock = ManualClock()
    with snowredis.connect(memory_pool(clock=clock), layout=layout) as ids:
        made = []
        for number in range(2000):
            clock.advance(number % 3)
            made.append(ids.next_id(gene=number) if number % 2 else ids.next_id())
            assert ids.decode(made[-1]).gene == (layout.gene_of(number) if number % 2 else 0)
        made += ids.next_ids(50)
        assert made == sorted(set(made))
        low, high = layout.id_range(0, 2**52)
        every = layout_ids(layout)
        lowest, highest = every.lowest, every.highest
        assert all(low <= an_id < high and lowest <= an_id <= highest for an_id in made)


def test_a_gene_is_part_of_a_hash_that_anybody_can_compute(layout: Layout) -> None:
    digest = int.from_bytes(hashlib.sha256(b"42").digest(), "big")
    assert layout.gene_of(42) == layout.gene_of("42") == layout.gene_of(b"42") == digest % 16
    genes = [layout.gene_of(key) for key in range(16_000)]
    assert all(900 < genes.count(gene) < 1100 for gene in range(16))


@pytest.mark.parametrize("bad", [1.5, [1], ()])
def test_a_key_that_has_no_gene_costs_no_id(layout: Layout, bad: Any) -> None:
    with snowredis.connect(memory_pool(), layout=layout) as ids:
        ids.next_id()
        made = ids.ids_made
        with pytest.raises(LayoutError, match="must be an int, str or bytes"):
            ids.next_id(gene=bad)
        for wrong in ({"genes": 1}, {"gene": 1, "other": 2}):
            with pytest.raises(TypeError):
                ids.next_id(**wrong)
        with pytest.raises(TypeError):
            ids.next_id(1)  # type: ignore[call-arg]
        assert ids.ids_made == made
    with snowredis.connect(memory_pool()) as ids, pytest.raises(LayoutError, match="has no gene bits"):
        ids.next_id(gene=1)


def test_friendly_texts_have_the_gene(layout: Layout) -> None:
    with snowredis.connect(memory_pool(), layout=layout) as ids:
        an_id = ids.next_id(gene="u-42")
    text = snowredis.encode(an_id, "friendly", layout=layout)
    assert text.endswith(f"_g{layout.gene_of('u-42'):02}")
    assert snowredis.parse(text, "friendly", layout=layout) == an_id


def test_a_real_pool_stores_names_and_genes(server: RedisServer) -> None:
    pool, spec = ("named-parts", "38/" + ",".join(f"{letter * 16}:1" for letter in "abcdefgh") + "/2/6/4;gene_bits=5")
    fields = dict.fromkeys((letter * 16 for letter in "abcdefgh"), 1)
    new_pool(server.url, pool, layout=spec, fields=fields, ttl=5)
    with snowredis.connect(server.url, pool=pool, layout=spec, fields=fields, ttl=5) as ids:
        an_id = ids.next_id(gene="u-42")
        found = snowredis.WorkerPool(server.url, pool).whois(an_id)
        assert (found.certainty, ids.decode(an_id).fields) == ("certain", fields)
    info = snowredis.WorkerPool(server.url, pool).info()
    assert (info.layout, info.options["datacenter"]) == (resolve_layout(spec), 255)
    with pytest.raises(LayoutError, match="more than 8"):
        resolve_layout("38/" + ",".join(f"{letter}:1" for letter in "abcdefghi") + "/2/6/4")
