"""List of the runs of the specification: runs.txt, one a line: configuration, expected result, rules switched off."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tests.spec.tlc import HERE, Outcome, run

# beginnings of the names of configurations -> the module that they are of; all others are of Ledger
MODULES = {"floor-": "Floor", "end-": "End"}


@dataclass(frozen=True)
class Run:
    """One run.

    Attributes:
        config: name of the configuration, a file beside this one.
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
        return next((module for begin, module in MODULES.items() if self.config.startswith(begin)), "Ledger")

    def text(self) -> str:
        """Return the configuration as TLC reads it."""
        text = (HERE / f"{self.config}.cfg").read_text()
        rules = ", ".join(f'"{rule}"' for rule in self.off)
        text, count = re.subn(r"^  Off = .*$", f"  Off = {{{rules}}}", text, flags=re.MULTILINE)
        if count != 1:
            raise ValueError(f"{self.config}.cfg does not have one line that begins with '  Off = '")
        return text

    def check(self, *, limit_s: float = 600, long: bool = False) -> Outcome:
        """Run TLC on it."""
        return run(self.module, self.text(), limit_s=limit_s, long=long)


def read_runs(path: Path = HERE / "runs.txt") -> list[Run]:
    """Return the runs of a file."""
    lines = (line.split("#")[0].split() for line in path.read_text().splitlines())
    return [Run(line[0], line[1], tuple(line[2:])) for line in lines if line]
