"""docs/reference/vectors.json: what it says is what the library does, and what it calls bad is refused."""

import json
from typing import Any

import pytest

from scripts import vectors
from snowredis.core.layout import Layout
from snowredis.core.presets import resolve_layout
from snowredis.core.text import parse
from snowredis.errors import ConfigError, InvalidId, LayoutError

KIT = json.loads(vectors.PLACE.read_text("utf-8"))


def test_the_file_is_what_the_script_writes() -> None:
    assert vectors.PLACE.read_text("utf-8") == vectors.text_of(vectors.vectors()), "run scripts/vectors.py"


@pytest.mark.parametrize("vector", KIT["layouts"], ids=lambda vector: vector["layout"])
def test_the_texts_of_the_file_are_read_back_as_their_ids(vector: dict[str, Any]) -> None:
    layout = resolve_layout(vector["layout"])
    for each in vector["ids"]:
        assert {parse(text, form, layout=layout) for form, text in each["texts"].items()} == {int(each["id"])}
    with pytest.raises(InvalidId):
        layout.decode(int(vector["too_large"]))


def test_genes_never_change() -> None:
    for key, gene in KIT["genes"]:
        for bits in (1, 4, 16):
            assert Layout(worker_bits=0, sequence_bits=0, gene_bits=bits).gene_of(key) == gene & (1 << bits) - 1
    assert KIT["genes"][2] == [42, 32841]


@pytest.mark.parametrize("spec", KIT["bad_layouts"])
def test_a_bad_layout_of_the_file_is_refused(spec: str) -> None:
    with pytest.raises((ConfigError, LayoutError)):
        resolve_layout(spec)


@pytest.mark.parametrize("bad", KIT["bad_texts"], ids=str)
def test_a_bad_text_of_the_file_is_refused(bad: dict[str, str]) -> None:
    with pytest.raises(InvalidId):
        parse(bad["text"], bad["form"])
