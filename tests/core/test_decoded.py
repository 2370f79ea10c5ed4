"""An id taken apart: the fields say the id again, and so does each of its text forms."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snowredis.core.as_json import decoded, to_json
from snowredis.core.presets import resolve_layout
from snowredis.core.text import moment_ms, parse

LAYOUTS = ["default", "twitter", "js-safe", "game", "41/region:2,business:4/2/6/4;gene_bits=4"]


@given(st.sampled_from(LAYOUTS), st.data())
def test_fields_and_forms_say_the_id_again(text: str, data: st.DataObject) -> None:
    layout = resolve_layout(text)
    an_id = data.draw(st.integers(1, (1 << layout.total_bits) - 1))
    found = decoded(layout, an_id, "decimal")
    assert int("".join(found.bits.values()), 2) == an_id
    assert list(found.bits) == [name for name, bits in layout.fields if bits]
    assert int(found.bits["timestamp"], 2) == found.parts.tick
    for form, form_text in found.forms.items():
        assert parse(form_text, form, layout=layout) == an_id
    assert found.parts.gene == an_id % (1 << layout.gene_bits)


def test_an_id_past_the_year_9999_has_neither_a_time_nor_a_friendly_form() -> None:
    found = decoded(resolve_layout("41/0/0/10/12;tick_ms=1000"), (1 << 63) - 1, "hex")
    assert to_json(found)["time"] is None
    assert "friendly" not in found.forms
    assert "hex" in found.forms


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-11-21", datetime(2026, 11, 21, tzinfo=UTC)),
        ("2026-11-21T03:16:21.059", datetime(2026, 11, 21, 3, 16, 21, 59_000, tzinfo=UTC)),
        ("2026-11-21T03:16:21+02:00", datetime(2026, 11, 21, 1, 16, 21, tzinfo=UTC)),
    ],
)
def test_a_time_without_an_offset_is_in_utc(text: str, moment: datetime) -> None:
    assert moment_ms(text) == round(moment.timestamp() * 1000)
