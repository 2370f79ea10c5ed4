"""Why a registry is closed: codes that the scripts write, each with a text for people. Pure."""

from __future__ import annotations

CLOSED_TEXTS = {
    "no-registry": "its Redis had no such registry, which pools created again",
    "other-server": "its Redis is another server process since then",
    "rolled-back": "it was older than what a pool had seen",
}
