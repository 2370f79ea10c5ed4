"""Description of the numbers of a tag. Pure."""

from __future__ import annotations

from snowredis.core.description import IdDescription


def describe(maximum: int, *, cyclic: bool) -> IdDescription:
    """Return the description of the numbers of a tag that ends at *maximum*."""
    return IdDescription(
        kind="segment",
        type=int,
        bits=max(1, maximum.bit_length()),
        text_length=len(str(maximum)),
        sortable=not cyclic,
        guessable=True,
        leaks=("volume",),
        needs=("redis",),
    )
