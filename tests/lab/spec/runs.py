"""List of the runs of the specification: runs.txt, one a line: configuration, expected result, rules switched off.

configurations.txt has the configurations.
"""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.lab.spec.tlc import HERE, Outcome, run

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
