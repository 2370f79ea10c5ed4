"""docs/alerts.yml and docs/grafana-dashboard.json: in bad moments, on a quiet day, and on metrics that exist."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from snowredis.monitor.conditions import TABLE
from snowredis.monitor.metrics import POOL, PROCESS, SEGMENTS, SERVICE
from tests.monitor.moments import EXPECTED
from tests.support.prometheus import promtool

ROOT = Path(__file__).parents[2]
ALERTS = ROOT / "docs" / "alerts.yml"
DASHBOARD = ROOT / "docs" / "grafana-dashboard.json"
SCENARIOS = sorted((ROOT / "tests" / "monitor" / "alerts").glob("*.yml"))


def expressions() -> Iterator[str]:
    """Yield the expressions of the dashboard as Grafana sends them."""
    for panel in json.loads(DASHBOARD.read_text("utf-8"))["panels"]:
        for target in panel["targets"]:
            yield target["expr"].replace("$__rate_interval", "1m").replace("$pool", "orders|users")


def asked_for(text: str) -> set[str]:
    """Return the metrics of snowredis that *text* names, ."""
    return set(re.findall(r"\bsnowredis_[a-z_]+\b", text))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_alerts_fire_when_they_should_and_not_on_a_quiet_day(path: Path) -> None:
    promtool("test", "rules", path)


def test_every_alert_is_tested_and_says_what_to_do() -> None:
    promtool("check", "rules", ALERTS)
    rules = ALERTS.read_text("utf-8").split("      - alert: ")[1:]
    names = {rule.split("\n", 1)[0] for rule in rules}
    assert len(names) == len(rules) > 20
    fired = set(re.findall(r'alertname="(\w+)"', "".join(path.read_text("utf-8") for path in SCENARIOS)))
    assert fired == names
    for rule in rules:
        for part in ("severity: ", "summary: ", "description: ", "runbook: "):
            assert part in rule, rule
        page, anchor = rule.partition("runbook: ")[2].split()[0].split("#")
        headings = re.findall(r"^#+ (.+)$", (ROOT / page).read_text("utf-8"), re.MULTILINE)
        assert anchor in {re.sub(r"[^\w ]", "", heading).lower().replace(" ", "-") for heading in headings}, rule


def test_every_condition_and_its_alert_are_in_a_bad_moment() -> None:
    """The table that scripts/bad_moments.py plays."""
    alerts = dict(re.findall(r"- alert: Snowredis(\w+)\n        expr: ([^\n]*)", ALERTS.read_text("utf-8")))
    assert {alert for each in EXPECTED.values() for alert in (*each.alerts, *each.quiet)} <= alerts.keys()
    played = {code for each in EXPECTED.values() for code in each.codes}
    # a pool without a worker, one that is not read, and an alarm have tests of their own
    assert TABLE.keys() - played == {"alarm", "pool-missing", "unread"}
    for alert, expression in alerts.items():
        level = re.search(r'condition="([a-z-]+)"}\) == 2', expression)
        if level:
            assert any(alert in each.alerts and level[1] in each.codes for each in EXPECTED.values()), alert


def test_the_quiet_day_has_every_metric_that_alerts_look_at() -> None:
    """Else no alert could fire on it."""
    quiet = asked_for((ROOT / "tests" / "monitor" / "alerts" / "quiet_day.yml").read_text("utf-8"))
    assert asked_for(re.sub(r"#.*|description: .*", "", ALERTS.read_text("utf-8"))) - quiet == set()


def test_alerts_dashboard_and_page_name_metrics_that_exist() -> None:
    known = {metric.name for metric in (*PROCESS, *POOL, *SERVICE, *SEGMENTS)}
    page = ROOT / "docs" / "how-to" / "monitoring.md"
    for text in (ALERTS.read_text("utf-8"), "\n".join(expressions()), page.read_text("utf-8")):
        asked = asked_for(text)
        assert asked
        assert asked - known == set()


def test_the_dashboard_is_valid_and_counts_no_pool_twice(tmp_path: Path) -> None:
    found = list(expressions())
    rules = tmp_path / "rules.yml"
    lines = [f"  - {{record: panel:{number}, expr: {json.dumps(text)}}}" for number, text in enumerate(found)]
    rules.write_text("\n".join(["groups:", "- name: dashboard", "  rules:", *lines]) + "\n")
    for text in found:
        # every exporter of a pool shows the same numbers
        assert not re.search(r"sum\b[^(]*\((\w+\()?snowredis_pool_", text), text
        if "snowredis_pool_" in text:
            assert re.search(r"(max|min) by \(pool", text), text
    promtool("check", "rules", rules)
