"""Text forms of ids: exact round trips, text order is id order, and what is refused."""

import re
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import snowredis
from snowredis.core.as_json import decoded, to_json
from snowredis.core.layout import Layout
from snowredis.core.presets import layouts, resolve_layout
from snowredis.core.text import FORMS, encode, form_of, moment_ms, parse, parse_user_id
from snowredis.core.values import MAX_ID, YEAR_10000_MS
from snowredis.errors import ConfigError, InvalidId, LayoutError
from tests.core.test_layout import any_layout

WIDTHS = {"base62": 11, "hex": 16}
ids = st.integers(0, MAX_ID) | st.integers(0, 2**20) | st.integers(MAX_ID - 2**20, MAX_ID)
# 2026-11-24T22:16:40.123Z, namespace 1, worker 17, sequence 5
AN_ID = layouts["default"].compose(tick=59_869_000_123, backup=1, worker=17, sequence=5)
FRIENDLY = "20261124T221640123Z_b1_w0017_s0005"


@st.composite
def layout_and_ids(draw: st.DrawFn, count: int = 1) -> Any:
    """A layout and ids of it whose time lies before the year 10000."""
    layout = draw(any_layout())
    ticks = min(layout.max_tick + 1, layout.first_tick_from(YEAR_10000_MS))
    numbers = st.integers(0, (ticks << layout.timestamp_shift) - 1)
    return layout, *(draw(numbers) for _ in range(count))


def refusal(text: str, form: str, **options: Any) -> str:
    with pytest.raises(InvalidId) as caught:
        parse(text, form, **options)
    return str(caught.value)


# -- round trips and order --------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [form for form in FORMS if form != "friendly"])
@given(an_id=ids)
@example(an_id=0)
@example(an_id=MAX_ID)
def test_every_id_comes_back_from_every_base_form(form: str, an_id: int) -> None:
    text = encode(an_id, form)
    assert parse(text, form) == an_id
    assert re.fullmatch("[0-9A-Za-z]+", text)
    assert len(text) == WIDTHS.get(form, len(str(an_id)))


@pytest.mark.parametrize("form", WIDTHS)
@given(one=ids, two=ids)
def test_padded_texts_sort_as_their_ids_do(form: str, one: int, two: int) -> None:
    assert (encode(one, form) < encode(two, form)) == (one < two)
    assert (encode(one, form) < encode(one + 1, form)) if one < MAX_ID else True


@given(layout_and_ids())
@example((Layout(), 0))
@example((Layout(), MAX_ID))
def test_every_id_of_every_layout_comes_back_from_its_friendly_form(case: Any) -> None:
    layout, an_id = case
    text = encode(an_id, "friendly", layout=layout)
    assert re.fullmatch("[0-9A-Za-z_]+", text)
    assert parse(text, "friendly", layout=layout) == an_id


@given(layout_and_ids(count=2))
def test_friendly_texts_sort_as_their_ids_do(case: Any) -> None:
    layout, one, two = case
    texts = [encode(an_id, "friendly", layout=layout) for an_id in (one, two)]
    assert len(texts[0]) == len(texts[1])
    assert (texts[0] < texts[1]) == (one < two)


# -- reading what people type -----------------------------------------------------------------------------


def test_hex_may_begin_with_0x() -> None:
    assert parse("0x37c1e1c6ed04405", "hex") == parse("0X037C1E1C6ED04405", "hex") == AN_ID
    assert "'x' at index 3" in refusal("0x1x", "hex")
    assert "it has 0 digits" in refusal("0x", "hex")


# -- refusals ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("value", [17, None, b"17", True])
def test_parse_refuses_what_is_no_text(form: str, value: Any) -> None:
    with pytest.raises(InvalidId, match=f"the text of an id must be a str, not {type(value).__name__}"):
        parse(value, form)


@pytest.mark.parametrize("form", [*WIDTHS, "decimal"])
def test_parse_refuses_empty_and_overlong_texts(form: str) -> None:
    width = WIDTHS.get(form, 19)
    assert f"it has 0 digits, not 1 .. {width}" in refusal("", form)
    assert f"it has {width + 1} digits, not 1 .. {width}" in refusal(encode(0, form)[0] * (width + 1), form)
    assert len(refusal("1" * 10**6, form)) < 300


@pytest.mark.parametrize("form", [*WIDTHS, "decimal", "friendly"])
@pytest.mark.parametrize("text", ["-5", "-1234567890123", "--", "-"])
def test_no_form_has_a_sign(text: str, form: str) -> None:
    assert "ids have no sign" in refusal(text, form)


@pytest.mark.parametrize("form", [*WIDTHS, "decimal"])
@pytest.mark.parametrize("char", [" ", "_", "+", "\u0661", "\uff11", "\u00e9", "\n", "\x00"])
def test_parse_says_which_character_is_foreign_and_where(form: str, char: str) -> None:
    message = refusal(f"12{char}4", form)
    assert f"{char!r} at index 2 is none of " in message
    assert f"not a valid id in the form {form}" in message


@pytest.mark.parametrize("form", [*WIDTHS, "decimal"])
def test_parse_refuses_values_from_2_to_the_63_on(form: str) -> None:
    just_over = {"decimal": "9223372036854775808", "base62": "AzL8n0Y58m8", "hex": "8000000000000000"}[form]
    assert f"it is {2**63}, past {MAX_ID} (2**63 - 1)" in refusal(just_over, form)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("value", [-1, 2**63, 1.0, "17", True, None])
def test_encode_refuses_what_is_no_id(form: str, value: Any) -> None:
    with pytest.raises(InvalidId):
        encode(value, form)


@pytest.mark.parametrize("form", ["base64", "", "Hex", None])
def test_an_unknown_form_is_refused_with_a_list_of_those_that_there_are(form: str) -> None:
    for call in (lambda: encode(1, form), lambda: parse("1", form)):
        with pytest.raises(ConfigError) as caught:
            call()
        assert f"unknown text form {form!r}" in str(caught.value)
        assert ", ".join(FORMS) in str(caught.value)


def test_friendly_cannot_write_times_past_the_year_9999_nor_ids_of_a_wider_layout() -> None:
    layout = Layout(timestamp_bits=50, backup_bits=0, sequence_bits=3)
    with pytest.raises(LayoutError, match="past the year 9999"):
        encode(MAX_ID, "friendly", layout=layout)
    with pytest.raises(InvalidId, match="54 bits"):
        encode(2**53, "friendly", layout="js-safe")
    with pytest.raises(ConfigError, match="unknown layout"):
        encode(1, "friendly", layout="myspace")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it has the fields '', but the layout 41/0/2/10/10"),
        ("20261124T221640123Z", "it has the fields '', but the layout"),
        ("20261124T221640123Z_b1_w0017", "it has the fields 'bw', but the layout"),
        ("20261124T221640123Z_d0_w0017_s0005", "it has the fields 'dws', but the layout"),
        ("20261124T221640123Z_b1_s0005_w0017", "it has the fields 'bsw', but the layout"),
        ("20261124T221640123Z_b1_w0017_s0005_", "it has the fields 'bws', but the layout"),
        ("20261124T221640123Z" + "_b1" * 1000, "bbb..., but the layout"),
        ("20261124T221640123Z_b1_w_s0005", "'w' is not 'w' and a number, the worker"),
        ("20261124T221640123Z_b1_w-017_s0005", "'w-017' is not 'w' and a number"),
        ("20261124T221640123Z_b1_w\u0661_s0005", "is not 'w' and a number"),
        ("20261124T221640123Z_b4_w0017_s0005", "backup '4' is out of range 0 .. 3"),
        ("20261124T221640123Z_b1_w1024_s0005", "worker '1024' is out of range 0 .. 1023"),
        ("20261124T221640123Z_b1_w00017_s0005", "worker '00017' is out of range"),
        (f"20261124T221640123Z_b1_w{'9' * 5000}_s0005", "is out of range 0 .. 1023"),
        ("20261124T221640123_b1_w0017_s0005", "is not a time like 20261121T023600123Z"),
        ("20261124T221640123z_b1_w0017_s0005", "is not a time like"),
        ("2026112\u0664T221640123Z_b1_w0017_s0005", "is not a time like"),
        ("20261124T240000000Z_b1_w0017_s0005", "is not a time like"),
        ("20261324T221640123Z_b1_w0017_s0005", "is not a valid time: month "),
        ("00001124T221640123Z_b1_w0017_s0005", "is not a valid time: year "),
        ("20261124T221660123Z_b1_w0017_s0005", "is not a valid time: second "),
        ("20241231T235959999Z_b1_w0017_s0005", "is outside the range of the layout 41/0/2/10/10"),
        ("20940907T154735552Z_b1_w0017_s0005", "is outside the range of the layout 41/0/2/10/10"),
    ],
)
def test_friendly_refuses_what_the_layout_cannot_have_written(text: str, why: str) -> None:
    message = refusal(text, "friendly")
    assert why in message
    assert "not a valid id in the form friendly" in message
    assert len(message) < 400


def test_friendly_reads_unpadded_fields() -> None:
    assert parse("20261124T221640123Z_b1_w17_s5", "friendly") == AN_ID


def test_friendly_refuses_a_time_between_two_ticks() -> None:
    assert parse("20250101T000010000Z_w0000000_s00000", "friendly", layout="game") == 1 << 36
    message = refusal("20250101T000010001Z_w0000000_s00000", "friendly", layout="game")
    assert "20250101T000010001Z is not the start of a tick of the layout 27/0/0/20/16" in message


# -- a form that is not known -----------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@given(an_id=ids)
def test_the_form_of_what_encode_wrote_is_seen_unless_hex_has_digits_alone(form: str, an_id: int) -> None:
    text = encode(an_id, form)
    if form == "hex" and text.isdigit() and text[0] != "0":
        assert form_of(text) == "decimal"
    else:
        assert parse_user_id(f" {text}\n", Layout(timestamp_bits=41)) == (form, an_id)


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("17", "decimal"),
        ("0", "decimal"),
        ("007", "decimal"),
        ("0000000000000017", "hex"),
        ("00000000017", "base62"),
        ("037c1e1c6ed04405", "hex"),
        ("0x17", "hex"),
        ("0IY510Qs3cL", "base62"),
        ("0X00008B4C0", "base62"),
        ("0x3775f2dcb60000", "hex"),
        ("251108786692965381", "decimal"),
        (FRIENDLY, "friendly"),
    ],
)
def test_the_shape_of_a_text_shows_its_form(text: str, form: str) -> None:
    assert form_of(text) == form


def test_a_friendly_text_is_read_with_the_layout_that_is_given() -> None:
    text = "20220628T160740105Z_d11_w26_s0000"
    assert parse_user_id(text, layouts["twitter"]) == ("friendly", 1541815603606036480)
    with pytest.raises(InvalidId, match="it has the fields 'dws', but the layout"):
        parse_user_id(text, layouts["default"])


@pytest.mark.parametrize("text", ["", " ", "hello, world", "9" * 40, "\u0661", "-5", 17])
def test_what_is_no_text_of_an_id_is_refused(text: Any) -> None:
    with pytest.raises(InvalidId, match=r"is not a valid id in the form|must be a str, not int 17"):
        parse_user_id(text, layouts["default"])


def test_a_form_that_is_named_is_the_only_one() -> None:
    layout = layouts["default"]
    assert parse_user_id(f" {encode(AN_ID, 'hex')} ", layout, form="hex") == ("hex", AN_ID)
    with pytest.raises(InvalidId):
        parse_user_id(encode(AN_ID, "base62"), layout, form="hex")


def test_an_id_is_decoded_by_a_layout_or_the_default_one() -> None:
    layout = Layout()
    an_id = layout.compose(tick=5, worker=7, sequence=9)
    assert snowredis.decode(an_id) == layout.decode(an_id)
    assert snowredis.decode(an_id, "twitter") == snowredis.layouts["twitter"].decode(an_id)
    with pytest.raises(snowredis.InvalidId):
        snowredis.decode(-1)


# --- an id taken apart: the fields say the id again, and so does each of its text forms ------------

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
