"""Claim worker ids when a server starts, so that its first request does not wait for one."""

from __future__ import annotations

import logging
import threading

from snowredis.errors import SnowredisError
from snowredis.process.exit import EXIT
from snowredis.process_generator import effective_settings, process_generator
from snowredis.snowflake.generator import Generator

log = logging.getLogger("snowredis")


def warm_up(limit_s: float) -> None:
    """Claim a worker id for every generator of this process before a server takes requests.

    If there is no generator, that of the process is made, if it has settings. Never raises: an error is logged, and
    the first id claims again.

    Blocks:
        for *limit_s* seconds at most; a claim that takes longer goes on in a thread.
    """
    thread = threading.Thread(target=_claim, name="snowredis-claim", daemon=True)
    thread.start()
    thread.join(limit_s)
    if thread.is_alive():
        log.warning(
            "no worker id after %.0f s; the claim continues, and ids can be made once it succeeds", limit_s
        )


def _claim() -> None:
    generators = [member for member in EXIT.members if isinstance(member, Generator) and not member.closed]
    try:
        if (
            not generators
            and effective_settings()
            and isinstance(of_process := process_generator(), Generator)
        ):
            generators = [of_process]
        for generator in generators:
            generator.claim()
    except SnowredisError as error:
        log.warning("no worker id yet; the first id claims again: %s", error)
