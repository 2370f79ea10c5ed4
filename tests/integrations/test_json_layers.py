"""docs/how-to/javascript.md says for each layer what to write: each row is run with the real package."""

import json
import re
from pathlib import Path

import pytest

from tests.integrations.programs.json_layers import ID, LAYERS
from tests.support.pages import PAGES

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
