"""The page on the usual stack, as it stands: PostgreSQL, Alembic, gunicorn with uvicorn's workers, celery."""

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa

import snowredis
from snowredis.snowflake.protocol.open import pool_config
from tests.support.databases import DatabaseServer
from tests.support.pages import blocks_of
from tests.support.ports import free_port
from tests.support.programs import finished, in_background
from tests.support.servers import redis_server
from tests.support.waiting import eventually

# packages that the programs need which the test starts: to import them here would take long
NEEDED = ("alembic", "celery", "fastapi", "gunicorn", "uvicorn_worker")
# those of them that take long, and need no settings
IMPORTED = (
    "alembic.config",
    "celery.bin.celery",
    "fastapi",
    "sqlalchemy.orm",
    "gunicorn.app.wsgiapp",
    "uvicorn_worker",
)
PAGE = "docs/how-to/usual-stack.md"


@contextlib.contextmanager
def running(module: str, *words: str, cwd: Path, variables: dict[str, str]) -> Iterator[None]:
    command, log = [sys.executable, "-m", module, *words], cwd / f"{module}.log"
    with in_background(command, log, imported=IMPORTED, cwd=cwd, env=os.environ | variables) as process:
        yield
        process.terminate()
        process.wait(20)


@pytest.mark.skipif(not all(map(find_spec, NEEDED)), reason=f"not all are installed: {', '.join(NEEDED)}")
def test_the_usual_stack_runs_as_the_page_says(postgresql_server: DatabaseServer, tmp_path: Path) -> None:
    shop = tmp_path / "shop"
    shop.mkdir()
    files = ("models.py", "app.py", "tasks.py", "env.py")
    code = [block.text for block in blocks_of(PAGE) if block.language == "python"]
    for name, text in zip(files, code, strict=True):
        (shop / name).write_text(text)
    database = postgresql_server.new_database()
    with redis_server(tmp_path, "--port", str(port := free_port()), "--bind", "127.0.0.1"):
        url = f"redis://127.0.0.1:{port}/0"
        variables: dict[str, Any] = {"DATABASE_URL": database, "SNOWREDIS_URL": url, "SNOWREDIS_POOL": "shop"}
        variables["PYTHONPATH"] = str(shop)
        snowredis.WorkerPool(url, "shop").create(pool_config({"pool": "shop"}))

        def alembic(*words: str) -> None:
            done = finished("-m", "alembic", *words, cwd=shop, imported=IMPORTED, **variables)
            assert done.returncode == 0, done.stderr

        alembic("init", "migrations")
        (shop / "env.py").replace(shop / "migrations/env.py")
        alembic("revision", "--autogenerate", "-m", "orders and receipts")
        migration = next((shop / "migrations/versions").glob("*.py")).read_text()
        assert "BigInteger" in migration
        assert "snowredis" not in migration
        alembic("upgrade", "head")
        web = free_port()
        gunicorn = ["app:app", "--worker-class=uvicorn_worker.UvicornWorker", "--workers=2", "--no-control-socket"]
        celery = ["-A", "tasks", "worker", "--concurrency", "1", "--without-mingle", "--without-gossip"]
        with (
            contextlib.ExitStack() as stack,
            running("celery", *celery, cwd=shop, variables=variables),
            running("gunicorn", *gunicorn, "-b", f"127.0.0.1:{web}", cwd=shop, variables=variables),
        ):

            def ask(path: str, **options: Any) -> Any:
                return client.request("POST" if options else "GET", path, **options).raise_for_status().json()

            client = stack.enter_context(httpx.Client(base_url=f"http://127.0.0.1:{web}"))
            eventually(lambda: ask("/openapi.json"), "the service", 40, ignored=(httpx.HTTPError,))
            assert ask("/ready") == {"ready": True}
            made = [ask("/orders", json={"customer": "Ada"}) for _ in range(5)]
            assert ask(f"/orders/{made[0]['id']}") == made[0]
            engine = sa.create_engine(database)

            def receipts() -> list[int]:
                with engine.connect() as connection:
                    return list(connection.execute(sa.text("SELECT order_id FROM receipts")).scalars())

            eventually(lambda: len(receipts()) == len(made), "the receipts", 40)
            assert sorted(receipts()) == sorted(int(order["id"]) for order in made)
            engine.dispose()
            assert ask("/ready")
        time.sleep(0.2)
        assert snowredis.WorkerPool(url, "shop").workers() == []
