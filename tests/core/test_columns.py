"""decode_many() gives for each id what decode() gives, with numpy and without."""

from __future__ import annotations

import sys
from array import array
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snowredis.core.layout import Layout
from snowredis.core.presets import layouts
from snowredis.core.values import MAX_ID
from snowredis.errors import InvalidId


@pytest.fixture(params=["numpy", "without"])
def numpy(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    if request.param == "numpy":
        return pytest.importorskip("numpy")
    monkeypatch.setitem(sys.modules, "numpy", None)
    return None


def rows(layout: Layout, ids: Any) -> list[tuple[int, ...]]:
    return [tuple(map(int, row)) for row in zip(*layout.decode_many(ids), strict=True)]


def expected(layout: Layout, ids: list[int]) -> list[tuple[int, ...]]:
    parts = map(layout.decode, ids)
    return [(p.timestamp_ms, p.datacenter, p.backup, p.worker, p.sequence, p.tick) for p in parts]


@pytest.mark.parametrize("name", sorted(layouts))
@pytest.mark.parametrize("with_numpy", [True, False])
@settings(max_examples=25)
@given(data=st.data())
def test_many_are_decoded_as_one_is(name: str, with_numpy: bool, data: st.DataObject) -> None:
    if with_numpy:
        pytest.importorskip("numpy")
    layout = layouts[name]
    ids = data.draw(st.lists(st.integers(0, (1 << layout.total_bits) - 1), max_size=20))
    with pytest.MonkeyPatch.context() as patch:
        if not with_numpy:
            patch.setitem(sys.modules, "numpy", None)
        assert rows(layout, ids) == expected(layout, ids)


def test_every_kind_of_buffer_is_read(numpy: Any) -> None:
    layout = Layout()
    ids = [layout.compose(tick=tick, worker=tick % 9, sequence=3) for tick in range(1, 50)]
    buffers: list[Any] = [ids, tuple(ids), array("q", ids), array("Q", ids), memoryview(array("q", ids))]
    buffers += [array("q", ids).tobytes(), bytearray(array("q", ids).tobytes())]
    if numpy is not None:
        buffers += [
            numpy.array(ids),
            numpy.array(ids, dtype="uint64"),
            numpy.array(ids).reshape(7, 7),
            numpy.array(ids * 2).reshape(2, 49)[0],
        ]
        buffers += [numpy.array([an_id for an_id in ids for _ in range(2)])[::2]]
    for buffer in buffers:
        assert rows(layout, buffer) == expected(layout, ids)
    columns = layout.decode_many(array("q", ids))
    assert type(columns.worker).__module__ == ("array" if numpy is None else "numpy")
    assert rows(layout, []) == rows(layout, array("q")) == rows(layout, b"") == []


@pytest.mark.parametrize("wrong", [-1, MAX_ID + 1, 1 << 64, 1 << 200, True, 1.0, "7", None, b"\0"], ids=repr)
def test_what_is_no_id_is_refused(wrong: Any, numpy: Any) -> None:
    with pytest.raises(InvalidId):
        Layout().decode_many([5, wrong])


def test_the_place_of_an_id_of_another_layout_is_named(numpy: Any) -> None:
    with pytest.raises(InvalidId, match=r"at index 2 is not a valid id of the layout .* has 53 bits"):
        layouts["js-safe"].decode_many(array("q", [1, 2, 1 << 60, 1 << 61]))


@pytest.mark.parametrize("wrong", [b"1234567", array("i", [1, 2]), array("d", [1.0])], ids=repr)
def test_buffers_that_hold_no_ids_are_refused(wrong: Any, numpy: Any) -> None:
    with pytest.raises(InvalidId, match="cannot hold ids"):
        Layout().decode_many(wrong)


def test_the_repr_of_many_ids_is_one_short_line(numpy: Any) -> None:
    text = repr(Layout().decode_many(array("q", range(100_000))))
    assert text == "<snowredis.Columns of 100,000 ids: timestamp_ms, datacenter, backup, worker, sequence, tick>"
