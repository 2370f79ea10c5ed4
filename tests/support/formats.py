"""The shape of what is stored in Redis: which keys and fields there are, and what their values look like."""

import re
from typing import Any

# the first that matches the whole text names it
_KINDS = (
    ("", r""),
    # no number has twelve digits, and the first name of a renewal has: one in 280 of those has no letter
    ("int", r"\d{1,11}|\d{13,16}"),
    ("ints", r"-?\d+(,-?\d+)+"),
    ("hex", r"[0-9a-f]{8,}"),
    ("incarnation", r"\d+-[0-9a-f]+"),
)


def shape_of(client: Any) -> dict[str, Any]:
    """Return the shape of all keys of a server: for a hash of its fields, for a stream of the events of each kind."""
    shapes: dict[str, Any] = {}
    for key in sorted(client.keys()):
        match client.type(key):
            case "hash":
                shapes[key] = fields_of(client.hgetall(key))
            case "zset":
                shapes[key] = {kind_of(member): "score" for member, _ in client.zrange(key, 0, -1, withscores=True)}
            case "stream":
                events = [fields for _, fields in client.xrange(key)]
                shapes[key] = {event["event"]: sorted(event) for event in events}
            case other:
                shapes[key] = other
    return shapes


def fields_of(fields: dict[str, str]) -> dict[str, str]:
    """Return the kinds of the values by field; numbers and hashes in names of fields are replaced."""
    kinds: dict[str, set[str]] = {}
    for field, text in fields.items():
        prefix, colon, rest = field.partition(":")
        kinds.setdefault(f"{prefix}:{kind_of(rest)}" if colon else field, set()).add(kind_of(text))
    return {field: " or ".join(sorted(kinds[field])) for field in sorted(kinds)}


def kind_of(text: str) -> str:
    """Return what a value looks like: for a record with "|" and a signature with "=" of each part."""
    if "{" in text:
        return "|".join([*map(kind_of, text[: text.index("{")].split("|")[:-1]), "json"])
    if "|" in text:
        return "|".join(map(kind_of, text.split("|")))
    if re.match(r"\w+=\S+ ", text):
        return " ".join(part.partition("=")[0] for part in text.split())
    return next((kind for kind, pattern in _KINDS if re.fullmatch(pattern, text)), "text")
