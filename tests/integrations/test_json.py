"""Ids that JavaScript would round are strings in JSON, also as docs/how-to/javascript.md says for each layer."""

import enum
import json
import math
import re
from collections import UserDict
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from snowredis.errors import ConfigError
from snowredis.integrations.json import MAX_SAFE_INTEGER, SnowflakeEncoder, dumps, flask_provider, stringify
from tests.integrations.programs.json_layers import ID, LAYERS
from tests.support.pages import PAGES


class Point(NamedTuple):
    x: int
    y: int


class Big(enum.IntEnum):
    ONE = ID


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (ID, str(ID)),
        (MAX_SAFE_INTEGER, MAX_SAFE_INTEGER),
        (MAX_SAFE_INTEGER + 1, "9007199254740992"),
        (-MAX_SAFE_INTEGER, -MAX_SAFE_INTEGER),
        (-MAX_SAFE_INTEGER - 1, "-9007199254740992"),
        (0, 0),
        (None, None),
        (str(ID), str(ID)),
        (b"raw", b"raw"),
        ([ID, [1, (ID, 2)]], [str(ID), [1, (str(ID), 2)]]),
        ({"a": {"b": [ID]}, ID: 1, 7: 2}, {"a": {"b": [str(ID)]}, str(ID): 1, 7: 2}),
        (Point(ID, 1), [str(ID), 1]),
        # such as a row of SQLAlchemy's mappings(), which FastAPI writes, too
        (UserDict(id=ID), {"id": str(ID)}),
        (Big.ONE, str(ID)),
    ],
)
def test_ints_beyond_53_bits_become_strings_and_others_stay(value: Any, expected: Any) -> None:
    changed = stringify(value)
    assert changed == expected
    assert type(changed) is type(expected)


def test_bools_and_floats_are_left_alone() -> None:
    changed = stringify({"id": [True, False, 1e300, 1.0, math.inf]}, keys={"id"})
    assert changed["id"] == [True, False, 1e300, 1.0, math.inf]
    assert [type(item) for item in changed["id"]] == [bool, bool, float, float, float]


def test_named_keys_hold_strings_whatever_the_size() -> None:
    value = {"id": 5, "n": 5, "ids": [1, 2], "rows": [{"id": 6}], "tags": {"x": 1}}
    assert stringify(value, keys={"id", "ids", "tags"}) == {
        "id": "5",
        "n": 5,
        "ids": ["1", "2"],
        "rows": [{"id": "6"}],
        "tags": {"x": 1},
    }


def test_the_argument_is_not_changed() -> None:
    value = {"ids": [ID]}
    stringify(value)
    assert value == {"ids": [ID]}


def test_a_single_name_for_keys_is_refused() -> None:
    with pytest.raises(ConfigError, match="not the str 'id'"):
        stringify({}, keys="id")


def test_a_value_that_contains_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(RecursionError):
        dumps(value)


def test_dumps_is_read_back_exactly_where_plain_json_is_rounded_by_javascript() -> None:
    assert json.loads(dumps({"id": ID, ID: 1})) == {"id": str(ID), str(ID): 1}
    assert int(json.loads(json.dumps(ID), parse_int=float)) != ID
    assert dumps([ID, "é"], indent=1, ensure_ascii=False) == f'[\n "{ID}",\n "é"\n]'
    assert dumps({"id": 1}, keys=("id",)) == '{"id": "1"}'


def test_what_a_default_returns_is_changed_too() -> None:
    assert dumps({3: Point, 4: {1}}, default=lambda _: {"id": ID}) == (
        f'{{"3": {{"id": "{ID}"}}, "4": {{"id": "{ID}"}}}}'
    )


def test_a_subclass_with_a_default_of_its_own_is_one_more_encoder() -> None:
    class Sets(SnowflakeEncoder):
        def default(self, o: Any) -> Any:
            return sorted(o) if isinstance(o, set) else super().default(o)

    assert json.dumps({1: {ID, 2}}, cls=Sets) == f'{{"1": [2, "{ID}"]}}'
    assert "".join(Sets().iterencode([{ID}])) == f'[["{ID}"]]'
    with pytest.raises(TypeError, match="not JSON serializable"):
        json.dumps(object(), cls=Sets)


def test_flask_answers_with_strings_and_keeps_its_own_types() -> None:
    import flask

    app = flask.Flask("shop")
    app.json = flask_provider(app, keys={"small_id"})
    with app.test_request_context():
        given = {"id": ID, "small_id": 5, "n": 5, "uuid": UUID(int=1)}
        assert flask.jsonify(given).json == {"id": str(ID), "small_id": "5", "n": 5, "uuid": str(UUID(int=1))}
        assert flask.render_template_string("{{ ids|tojson }}", ids=[ID]) == f'["{ID}"]'


# --- the layers of the page ---------------------------------------------------------------------------


HERE = Path(__file__).parent
# the rows that other tests run: those of Django need a project, with programs that test_django.py runs
ELSEWHERE = {
    "pydantic": "test_pydantic.py",
    "FastAPI, with a model": "test_pydantic.py",
    "Django's `JsonResponse` and `json_script`": "programs/django_project/shop/tests.py",
    "Django Ninja": "programs/django_project/shop/tests.py",
    "Django REST framework, drf-spectacular": "programs/django_rest.py",
    "graphene-django, strawberry-django": "programs/django_graphql.py",
}


def rows() -> dict[str, str]:
    """Return the first cell -> the second one of each row of the table."""
    table = PAGES["docs/how-to/javascript.md"].read_text("utf-8").partition("| layer | what to write |")[2]
    return dict(re.findall(r"^\| (.+?) \| (.+) \|$", table.partition("\n\n")[0], re.MULTILINE))


def test_every_row_is_run() -> None:
    assert set(rows()) == {*LAYERS, *ELSEWHERE}


@pytest.mark.parametrize("layer", [*LAYERS, *ELSEWHERE])
def test_what_a_row_says_is_what_is_run(layer: str) -> None:
    source = (HERE / ELSEWHERE.get(layer, "programs/json_layers.py")).read_text("utf-8")
    for code in re.findall(r"`([^`]+)`", rows()[layer]):
        assert code.replace("\\|", "|") in source, code


@pytest.mark.parametrize("layer", LAYERS)
def test_javascript_reads_every_digit(layer: str) -> None:
    # as JavaScript does, for which every number is a float
    read = json.loads(LAYERS[layer](), parse_int=float)
    assert read["id"] == str(ID)
    assert [item["id"] for item in read.get("lines", ())] in ([str(ID)], [])
