"""Numbers of business tags, such as invoice numbers, handed out by Redis in segments and prefetched in the background.

    import snowredis
    from snowredis.segment import create_tag

    create_tag("redis://localhost:6379/0", "invoices")      # once: a person says that it is new
    invoices = snowredis.generator("segment", url="redis://localhost:6379/0", tag="invoices")
    invoices.next_id()          # 1, 2, 3, …

model.py has the constants of a tag; lua/ the scripts; path.py the numbers of the current segment, in Python and in C;
client.py the requests to one server, fetcher.py those to all servers; prefetcher.py the thread; generator.py the rest;
administration.py is what a person does to tags.
"""

from __future__ import annotations

from snowredis.segment.administration import TagInfo, change_tag, create_tag, delete_tag, open_tag, show_tag
from snowredis.segment.bounds import highest_in
from snowredis.segment.errors import TagClosed, TagExhausted, TagLimited, TagMismatch
from snowredis.segment.generator import SegmentGenerator

__all__ = [
    "SegmentGenerator",
    "TagClosed",
    "TagExhausted",
    "TagInfo",
    "TagLimited",
    "TagMismatch",
    "change_tag",
    "create_tag",
    "delete_tag",
    "highest_in",
    "open_tag",
    "show_tag",
]
