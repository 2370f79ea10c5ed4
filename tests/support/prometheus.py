"""A real Prometheus, and promtool, of the system's packages; tests are skipped where there are none."""

import contextlib
import json
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.ports import free_port
from tests.support.waiting import eventually

PROMTOOL, PROMETHEUS = shutil.which("promtool"), shutil.which("prometheus")
MISSING = "not on PATH; on Debian: apt-get install prometheus"
# a busy machine starts it within a few seconds
START_LIMIT_S = 30.0
CONFIG = """\
global: {{scrape_interval: {scrape}, scrape_timeout: {scrape}, evaluation_interval: 1s}}
rule_files: [rules.yml]
scrape_configs:
  - {{job_name: snowredis, static_configs: [{{targets: [{targets}]}}]}}
"""


def promtool(*arguments: str | Path, text: str | None = None) -> None:
    """Run promtool, and fail with its output if it finds something wrong. Skip the test without promtool."""
    if PROMTOOL is None:
        pytest.skip(f"promtool is {MISSING}")
    # a quiet day takes a minute of a busy machine
    done = subprocess.run([PROMTOOL, *arguments], input=text, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr


def check_text(text: str) -> None:
    """Fail unless *text* is valid as a scrape: by prometheus_client's parser, and by promtool where it is."""
    from prometheus_client.parser import text_string_to_metric_families

    types = [line for line in text.splitlines() if line.startswith("# TYPE ")]
    assert len(types) == len(set(types)), "a metric appears twice"
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    series = [(sample.name, tuple(sorted(sample.labels.items()))) for sample in samples]
    assert samples
    assert len(series) == len(set(series)), "a series appears twice"
    if PROMTOOL is not None:
        promtool("check", "metrics", text=text)


class Prometheus:
    """A Prometheus on loopback.

    Args:
        directory: a new one, for its data.
        targets: ports of the targets on 127.0.0.1.
        rules: text of a rule file.
        scrape: between two scrapes, and how long one may take; rules are evaluated every second.
    """

    def __init__(self, directory: Path, *targets: int, rules: str, scrape: str = "1s") -> None:
        directory.mkdir(exist_ok=True)
        self._directory, self._port = directory, free_port()
        (directory / "rules.yml").write_text(rules, "utf-8")
        config = CONFIG.format(scrape=scrape, targets=", ".join(f'"127.0.0.1:{port}"' for port in targets))
        (directory / "prometheus.yml").write_text(config, "utf-8")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it replies."""
        assert PROMETHEUS is not None, f"prometheus is {MISSING}"
        arguments = [
            f"--config.file={self._directory / 'prometheus.yml'}",
            f"--storage.tsdb.path={self._directory / 'data'}",
            f"--web.listen-address=127.0.0.1:{self._port}",
            "--log.level=warn",
        ]
        log = self._directory / "prometheus.log"
        with log.open("ab") as output:
            self._process = process = subprocess.Popen([PROMETHEUS, *arguments], stdout=output, stderr=output)

        def is_ready() -> bool:
            assert process.poll() is None, log.read_text()
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/-/ready", timeout=5) as response:
                return bool(response.status == 200)

        eventually(is_ready, "prometheus", START_LIMIT_S, ignored=(OSError,))

    def stop(self) -> None:
        """Kill it; its data is not needed any more."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(10)

    def ask(self, path: str, **parameters: str) -> Any:
        """Return the data of a reply of its API."""
        url = f"http://127.0.0.1:{self._port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=10) as response:
            return json.load(response)["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the result of *expression* now."""
        result: list[dict[str, Any]] = self.ask("query", query=expression)["result"]
        return result


@contextlib.contextmanager
def prometheus(directory: Path, target: int, rules: str) -> Iterator[Prometheus]:
    """Start one for a test, and stop it. Skip the test where there is none."""
    if PROMETHEUS is None:
        pytest.skip(f"prometheus is {MISSING}")
    server = Prometheus(directory, target, rules=rules)
    try:
        server.start()
        yield server
    finally:
        server.stop()
