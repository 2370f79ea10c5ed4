"""Requests made from the service's own description by schemathesis, good and bad ones: none may break it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.pools import new_pool
from tests.support.servers import RedisServer
from tests.web.conftest import Serve

PROGRAM = shutil.which("schemathesis", path=str(Path(sys.executable).parent)) or shutil.which("schemathesis")
# not: that what the description allows is never refused. A text may be no id in the form that is asked for
CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,"
    "response_headers_conformance,negative_data_rejection,unsupported_method,ignored_auth"
)


@pytest.mark.skipif(PROGRAM is None, reason="schemathesis is not installed")
def test_no_request_that_the_description_leads_to_breaks_the_service(
    server: RedisServer, pool_name: str, serve: Serve, tmp_path: Path
) -> None:
    assert PROGRAM is not None
    new_pool(server.url, pool_name)
    served = serve("--pool", pool_name, url=server.url, SNOWREDIS_SERVE_LOOKUPS_PER_S="100000")
    done = subprocess.run(
        [
            PROGRAM,
            "run",
            f"{served.url}/openapi.json",
            "--max-examples",
            "25",
            "--no-color",
            "--checks",
            CHECKS,
        ],
        capture_output=True,
        text=True,
        timeout=100,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr
    assert served.ask("/readyz")[0] == 200
