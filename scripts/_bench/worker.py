"""Process that measures on request, so that both implementations take turns.

Started by ids.py; lines of JSON on standard input and output. SNOWREDIS_PURE in its environment chooses.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from scripts._bench.contestants import BY_LABEL, CONTESTANTS, Field
from scripts._bench.measuring import UNCAPPED, calls_in, this_machine
from scripts._bench.pauses import samples
from snowredis.snowflake.ids.fast_path import IMPLEMENTATION


class Worker:
    """The driver's interface to one measuring process."""

    def __init__(self, label: str, *, pure: bool, url: str = "", layout: str = UNCAPPED) -> None:
        self.label = label
        environment = {name: value for name, value in os.environ.items() if name != "SNOWREDIS_PURE"}
        self._process = subprocess.Popen(
            [sys.executable, "-P", __file__, "ours" if pure else "all", url, layout],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment | ({"SNOWREDIS_PURE": "1"} if pure else {}),
        )
        self._to: Any = self._process.stdin
        self._from: Any = self._process.stdout
        self.said: dict[str, Any] = self.answer()

    def ask(self, what: str, **values: Any) -> None:
        print(json.dumps({"what": what, **values}), file=self._to, flush=True)

    def answer(self) -> Any:
        line = self._from.readline()
        if not line:
            raise SystemExit(f"the process that measures {self.label} ended with {self._process.wait()}")
        return json.loads(line)

    def asked(self, what: str, **values: Any) -> Any:
        self.ask(what, **values)
        return self.answer()

    def stop(self) -> None:
        self._to.close()
        self._process.wait()


def main() -> None:
    which, url, layout = sys.argv[1:]
    field = Field.prepared(only_ours=which == "ours", url=url, layout=layout)
    packages = sorted({contestant.package for contestant in CONTESTANTS if contestant.label in field.names} - {""})
    said = {
        "machine": this_machine(),
        "implementation": IMPLEMENTATION,
        "labels": list(field.names),
        "missing": field.missing,
        "versions": {package: _version(package) for package in packages},
    }
    print(json.dumps(said), flush=True)
    calls: dict[str, int] = {}
    for line in sys.stdin:
        match json.loads(line):
            case {"what": "prepare", "label": label, "seconds": seconds}:
                calls[label] = BY_LABEL[label].calls or calls_in(field.subject(label, 1), seconds)
                answer: Any = calls[label]
            case {"what": "measure", "label": label, "threads": threads}:
                if BY_LABEL[label].calls:
                    # to a tick of which nothing is used
                    time.sleep(0.002)
                answer = field.subject(label, threads).ns(calls[label])
            case {"what": "samples", "label": label, "pause": pause, "count": count}:
                answer = samples(BY_LABEL[label].statement, field.names[label], pause, count)
        print(json.dumps(answer), flush=True)


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "this tree"


if __name__ == "__main__":
    main()
