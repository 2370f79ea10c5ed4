"""Claim worker ids when a server starts, so that its first request need not wait for one."""

from __future__ import annotations

import logging
import threading

from snowredis.errors import SnowredisError
from snowredis.process_generator import effective_settings, process_generator
from snowredis.runtime.exit import EXIT
from snowredis.runtime.generator import Generator

log = logging.getLogger("snowredis")


def warm_up(limit_s: float) -> None:
    """Claim for every generator of this process, or for the process' own if there is no other and it has settings.

    For a server that is about to take requests. Never raises: the first id tries again what fails now.

    Blocks:
        for *limit_s* at most; a claim that takes longer goes on in the background.
    """
    thread = threading.Thread(target=_claim, name="snowredis-claim", daemon=True)
    thread.start()
    thread.join(limit_s)
    if thread.is_alive():
        log.warning(
            "no worker id after %.0f s; the claim goes on, and ids are made as soon as there is one", limit_s
        )


def _claim() -> None:
    open_ones = [member for member in EXIT.members if isinstance(member, Generator) and not member.closed]
    try:
        if not open_ones and effective_settings():
            open_ones = [process_generator()]
        for generator in open_ones:
            generator.claim()
    except SnowredisError as error:
        log.warning("no worker id yet, the first id will try again: %s", error)
