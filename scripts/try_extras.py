#!/usr/bin/env python3
"""Install the source archive with and without a compiler, and the wheel with each extra alone, into clean environments.

    scripts/try_extras.py                     # all, 8 minutes with a warm cache of pip
    scripts/try_extras.py prometheus dask     # these extras and frameworks only

Each environment imports what it is for, says which implementation is in use, and runs the command line. The frameworks
that the tests do not install run their program of tests/integrations/programs/without_code on a private redis-server.
Exit code: 1 if one fails. A step that takes more than LIMIT_S has failed.
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
LIMIT_S = 600
INSTALL = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
BASE = "import snowredis, snowredis.testing; print(snowredis.testing.memory_pool().connect().next_id() > 0)"
# what each extra is for
IMPORTS = {
    "fake": "import fakeredis, lupa",
    "merge": "import snowredis.merge.check, snowredis.merge.databases",
    "ulid": "print(snowredis.generator('ulid').next_id())",
    "uuid": "print(snowredis.generator('uuid7').next_id())",
    "celery": "import snowredis.integrations.celery",
    "django": "import django; from snowredis.integrations.django import SnowflakeField",
    "gunicorn": "import gunicorn, snowredis.integrations.gunicorn",
    "opentelemetry": "import snowredis.integrations.opentelemetry",
    "prometheus": "import snowredis.integrations.prometheus",
    "pydantic": "import snowredis.integrations.pydantic",
    "rq": "import snowredis.integrations.rq",
    "sqlalchemy": "import snowredis.integrations.sqlalchemy",
    "uvicorn": "import uvicorn_worker, snowredis.integrations.gunicorn",
    "web": "import snowredis.web.service, uvicorn, httptools",
}
PROGRAMS = ROOT / "tests" / "integrations" / "programs" / "without_code"
# what the program with_NAME.py needs
FRAMEWORKS = {
    "dask": ["dask[distributed]"],
    "litestar": ["litestar"],
    "piccolo": ["piccolo[sqlite]"],
    # 0.26 imports typing_extensions, and does not require it
    "saq": ["saq[redis]", "typing_extensions"],
    "taskiq": ["taskiq"],
}
LEASED = "import snowredis, sys; print(len(snowredis.WorkerPool(*sys.argv[1:]).workers()))"


def run(*command: str | Path, cwd: Path, **variables: str) -> str:
    done = subprocess.run(
        command, check=False, cwd=cwd, env=os.environ | variables, capture_output=True, text=True, timeout=LIMIT_S
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout.strip()


def new_environment(scratch: Path) -> Path:
    """Return the Python of an empty environment."""
    directory = scratch / "environment"
    shutil.rmtree(directory, ignore_errors=True)
    venv.create(directory, with_pip=True)
    return directory / "bin" / "python"


def try_one(requirement: str, statement: str, scratch: Path, **variables: str) -> str:
    """Install *requirement* into a new environment, run *statement*, and return the implementation in use."""
    python = new_environment(scratch)
    run(python, *INSTALL, requirement, cwd=scratch, **variables)
    run(python, "-c", f"{BASE}; {statement}", cwd=scratch)
    run(python.parent / "snowredis", "decode", "123456789012345678", cwd=scratch)
    return run(python, "-c", "import snowredis; print(snowredis.IMPLEMENTATION)", cwd=scratch)


def try_framework(wheel: Path, name: str, scratch: Path) -> str:
    """Run the program of a framework in a new environment: it makes ten ids, and leaves no worker id leased."""
    python = new_environment(scratch)
    run(python, *INSTALL, wheel, *FRAMEWORKS[name], cwd=scratch)
    redis = scratch / "redis.sock"
    command = ["redis-server", "--port", "0", "--unixsocket", str(redis), "--dir", str(scratch), "--save", ""]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        variables = {"SNOWREDIS_URL": f"unix://{redis}", "SNOWREDIS_POOL": name}
        while not redis.exists():
            time.sleep(0.05)
        run(python.parent / "snowredis", "pool", "create", name, cwd=scratch, **variables)
        ids = set(map(int, run(python, PROGRAMS / f"with_{name}.py", cwd=scratch, **variables).split()))
        leased = run(python, "-c", LEASED, *variables.values(), cwd=scratch)
    finally:
        server.kill()
        server.wait()
    assert (len(ids), leased) == (10, "0"), (ids, leased)
    return "10 ids"


def main() -> int:
    wanted = sys.argv[1:] or ["sdist", "sdist without a compiler", *IMPORTS, *FRAMEWORKS]
    failed = 0
    with tempfile.TemporaryDirectory(prefix="snowredis-extras-") as directory:
        scratch = Path(directory)
        python = new_environment(scratch)
        run(python, *INSTALL, "build", cwd=scratch)
        run(python, "-m", "build", "--outdir", scratch / "dist", ROOT, cwd=scratch)
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
                elif name in FRAMEWORKS:
                    result = try_framework(wheel, name, scratch)
                else:
                    result = try_one(f"{wheel}[{name}]", IMPORTS[name], scratch)
            except (AssertionError, RuntimeError, subprocess.TimeoutExpired) as error:
                failed += 1
                result = f"FAILED: {error}"
            print(f"{name:<26} {result}, {time.monotonic() - began_s:.0f} s", flush=True)
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
