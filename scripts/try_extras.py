#!/usr/bin/env python3
"""Install the source archive with and without a compiler, and the wheel with each extra alone, into clean environments.

    scripts/try_extras.py                     # all: 12 environments, 3 minutes with a warm cache of pip
    scripts/try_extras.py prometheus web      # these extras only

Each environment imports what it is for, says which implementation is in use, and runs the command line. Exit code: 1
if one fails. A step that takes more than LIMIT_S has failed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIMIT_S = 180
BASE = "import snowredis, snowredis.testing; print(snowredis.testing.memory_pool().connect().next_id() > 0)"
# what each extra is for
IMPORTS = {
    "cli": "import shtab, snowredis.cli.top_view",
    "fake": "import fakeredis, lupa",
    "celery": "import snowredis.integrations.celery",
    "django": "import django; from snowredis.integrations.django import SnowflakeField",
    "gunicorn": "import gunicorn, snowredis.integrations.gunicorn",
    "opentelemetry": "import snowredis.integrations.opentelemetry",
    "prometheus": "import snowredis.integrations.prometheus",
    "pydantic": "import snowredis.integrations.pydantic",
    "rq": "import snowredis.integrations.rq",
    "sqlalchemy": "import snowredis.integrations.sqlalchemy",
    "web": "import snowredis.web.service, uvicorn, httptools",
}


def run(*command: str | Path, cwd: Path, **variables: str) -> str:
    done = subprocess.run(
        command,
        check=False,
        cwd=cwd,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout.strip()


def try_one(requirement: str, statement: str, scratch: Path, **variables: str) -> str:
    """Install *requirement* into a new environment, run *statement*, and return the implementation in use."""
    directory = scratch / "environment"
    shutil.rmtree(directory, ignore_errors=True)
    venv.create(directory, with_pip=True)
    python = directory / "bin" / "python"
    run(
        python,
        *["-m", "pip", "install", "--quiet", "--disable-pip-version-check"],
        requirement,
        cwd=scratch,
        **variables,
    )
    run(python, "-c", f"{BASE}; {statement}", cwd=scratch)
    run(directory / "bin" / "snowredis", "decode", "123456789012345678", cwd=scratch)
    return run(python, "-c", "import snowredis; print(snowredis.IMPLEMENTATION)", cwd=scratch)


def main() -> int:
    wanted = sys.argv[1:] or ["sdist", "sdist without a compiler", *IMPORTS]
    failed = 0
    with tempfile.TemporaryDirectory(prefix="snowredis-extras-") as directory:
        scratch = Path(directory)
        run(sys.executable, "-m", "build", "--outdir", scratch / "dist", ROOT, cwd=scratch)
        (sdist,) = (scratch / "dist").glob("*.tar.gz")
        (wheel,) = (scratch / "dist").glob("*.whl")
        for name in wanted:
            began_s = time.monotonic()
            try:
                if name == "sdist":
                    result = try_one(str(sdist), "pass", scratch)
                elif name.startswith("sdist"):
                    result = try_one(f"{sdist}", "pass", scratch, CC="/bin/false")
                    assert result == "python", result
                else:
                    result = try_one(f"{wheel}[{name}]", IMPORTS[name], scratch)
            except (AssertionError, RuntimeError, subprocess.TimeoutExpired) as error:
                failed += 1
                result = f"FAILED: {error}"
            print(f"{name:<26} {result}, {time.monotonic() - began_s:.0f} s", flush=True)
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
