"""Many ids at once: as a list, or into a buffer."""

from __future__ import annotations

from typing import Any

from snowredis.errors import ConfigError
from snowredis.runtime.buffers import as_int64
from snowredis.runtime.id_allocator import IdAllocator

MAX_BATCH = 1_000_000


def check_count(count: int) -> None:
    """Raise ConfigError unless *count* ids can be asked for at once."""
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MAX_BATCH:
        raise ConfigError(
            f"next_ids({count!r}): a whole number from 1 to {MAX_BATCH} can be asked for at once"
        )


class Batches(IdAllocator):
    """What a generator makes of its blocks besides single ids."""

    __slots__ = ()

    def next_ids(self, count: int) -> list[int]:
        """Make *count* ids at once.

        Args:
            count: how many, 1 to 1,000,000.

        Returns:
            Exactly *count* ints, 0 < id < 2**63, strictly increasing.

        Raises:
            As next_id(); nothing of the batch is returned then.

        Blocks:
            while the layout's ceiling is reached: count / 1024 ms at the default layout.
        """
        check_count(count)
        while True:
            generation = self._guard.generation
            batch: list[int] = []
            while len(batch) < count:
                part = self._take(count - len(batch))
                if batch and part[0] < batch[-1]:
                    # the clock went back and another namespace is in use: what was taken before would not be in order
                    batch.clear()
                batch += part
            if self._guard.generation == generation and self._guard.alive:
                return batch

    def _take(self, count: int) -> list[int]:
        """One to *count* ids of one block."""
        return self._take_now(count) or [self._next_slow()]

    def fill(self, buffer: Any) -> None:
        """Fill a writable buffer of int64 with ids, strictly increasing.

        Args:
            buffer: array('q'), numpy int64, shared memory, or any contiguous writable buffer of 8-byte
                integers or of bytes (a multiple of 8 of them).

        Raises:
            ConfigError: the buffer is of another kind. Else as next_id(); the buffer then holds a part.

        Blocks:
            as next_ids().
        """
        view = as_int64(buffer)
        filled = 0
        generation = self._guard.generation
        last = -1
        while filled < len(view) or self._guard.generation != generation or not self._guard.alive:
            if self._guard.generation != generation or not self._guard.alive:
                # forked in between: what is there so far is the parent's
                self._guard.check()
                generation, filled, last = self._guard.generation, 0, -1
            wanted = view[filled : filled + MAX_BATCH]
            count = self._fill_now(wanted)
            if not count:
                wanted[0], count = self._next_slow(), 1
            if self._guard.generation != generation or not self._guard.alive:
                continue
            if wanted[0] < last:
                # the clock went back and another namespace is in use: begin again, in its order
                view[:count] = wanted[:count]
                filled = 0
            filled += count
            last = view[filled - 1]
