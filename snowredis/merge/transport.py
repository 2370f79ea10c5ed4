"""Rows on their way from the second database to the first: by COPY, by INSERT … SELECT on one server, or in pages."""

from __future__ import annotations

from collections.abc import Sequence

from snowredis.merge.catalog import Catalog
from snowredis.merge.databases import Session
from snowredis.merge.progress import Progress

_BLOCK = 1 << 16
_SERVER = "SELECT CONCAT_WS('|', @@hostname, @@port, @@datadir, @@socket, @@pid_file)"


class Transport:
    """Copies the rows of queries.

    Args:
        first, second: open transactions.

    Attributes:
        prefix: of tables of the second database in statements of the first; empty: another server.
    """

    def __init__(self, first: Session, second: Session, catalogs: tuple[Catalog, Catalog], progress: Progress) -> None:
        self.first, self.second, self.progress = first, second, progress
        self._quote, self._kind = catalogs[0].quote, first.engine.dialect.name
        self.prefix = self._database_of_second()

    def _database_of_second(self) -> str:
        """Return the name of the second database as the first server knows it; empty: two servers."""
        if self._kind not in ("mysql", "mariadb") or self.first.one(_SERVER) != self.second.one(_SERVER):
            return ""
        name = self._quote(str(self.second.engine.url.database))
        seen = f"SELECT 1 FROM information_schema.schemata WHERE schema_name = '{self.second.engine.url.database}'"
        return f"{name}." if self.first.rows(seen) else ""

    def copy(self, query: str, query_here: str, table: str, columns: Sequence[str], *, is_here: bool) -> None:
        """Insert the rows of a query of the second database into a table of the first.

        Args:
            query_here: the same as the first server understands it, where *prefix* is not empty.
            is_here: whether it may be used.
        """
        into = f"INTO {table} ({', '.join(map(self._quote, columns))})"
        if self._kind == "postgresql":
            self._copy_blocks(query, f"COPY {into.removeprefix('INTO ')} FROM STDIN")
        elif self.prefix and is_here:
            self.first.run(f"INSERT {into} {query_here}")
        else:
            for page in self.second.pages(query):
                self.first.insert(f"INSERT {into}", len(columns), page)
                self.progress.add(len(page))

    def _copy_blocks(self, query: str, target: str) -> None:
        with (
            self.second.driver.cursor().copy(f"COPY ({query}) TO STDOUT") as rows,
            self.first.driver.cursor().copy(target) as into,
        ):
            blocks, size = list[bytes](), 0
            # a block is a row
            for block in rows:
                blocks.append(bytes(block))
                size += len(block)
                if size >= _BLOCK:
                    into.write(b"".join(blocks))
                    blocks, size = [], 0
            into.write(b"".join(blocks))
