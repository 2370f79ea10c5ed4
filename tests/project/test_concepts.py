"""Concepts that a person has to learn do not grow unseen: scripts/concepts.py counts them."""

from scripts.concepts import count

MOST = {
    "options": 88,
    "settings of connect()": 18,
    "JSON fields": 112,
    "conditions": 13,
    "levels": 4,
    "error classes": 16,
    "glossary words": 36,
    "forms of a lease": 1,
}


def test_there_are_no_more_concepts_than_before() -> None:
    found = count()
    assert found.keys() == MOST.keys()
    grown = {what: number for what, number in found.items() if number > MOST[what]}
    assert not grown, "leave another one out; or raise MOST, and let the commit say what the new one is good for"
