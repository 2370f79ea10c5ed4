"""The files of examples/deploy/ parse, name real settings and commands, and are in the docs as they are."""

import configparser
import importlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

import snowredis
from snowredis.cli import build_parser
from snowredis.settings import from_environment
from snowredis.snowflake.protocol.pool_config import PoolConfig
from snowredis.web.server import GRACE_S
from tests.support.ports import free_port
from tests.support.programs import ROOT
from tests.support.servers import redis_server
from tests.support.waiting import eventually

DEPLOY = ROOT / "examples/deploy"
PAGES = sorted((ROOT / "docs").rglob("*.md"))
LINKED = re.compile(r"\]\((?:\.\./)+(examples/deploy/[\w.-]+)\)")
QUOTED = re.compile(r"<!-- file: (\S+) -->\n+```\w*\n(.*?)```\n", re.DOTALL)


def documents(name: str) -> list[Any]:
    return list(yaml.safe_load_all((DEPLOY / name).read_text("utf-8")))


def containers(name: str) -> Iterator[dict[str, Any]]:
    for document in documents(name):
        yield from document.get("spec", {}).get("template", {}).get("spec", {}).get("containers", [])


def check_environment(environment: dict[str, str]) -> None:
    settings = {name: value for name, value in environment.items() if name.startswith("SNOWREDIS_")}
    assert settings
    snowredis.connect(**from_environment(settings))


def test_each_file_is_linked_or_quoted_as_it_is() -> None:
    shown = set()
    for page in PAGES:
        content = page.read_text("utf-8")
        shown |= set(LINKED.findall(content))
        for name, text in QUOTED.findall(content):
            assert text == (ROOT / name).read_text("utf-8"), f"{page} quotes another text of {name}"
            shown.add(name)
    assert shown == {str(path.relative_to(ROOT)) for path in DEPLOY.iterdir() if path.is_file()}


def test_compose_creates_the_pool_before_the_application_starts() -> None:
    services = documents("compose.yaml")[0]["services"]
    for service in services.values():
        assert set(service.get("depends_on", ())) <= set(services)
        if "environment" in service:
            check_environment(service["environment"])
    command = build_parser().parse_args(shlex.split(services["new-pool"]["command"])[1:])
    assert command.pool == services["web"]["environment"]["SNOWREDIS_POOL"]
    assert shlex.split(services["redis"]["command"])[1:] == ["--save", "", "--appendonly", "no"]


def test_ci_creates_the_pool_of_its_environment() -> None:
    job = documents("ci.yaml")[0]["jobs"]["test"]
    check_environment(job["env"])
    create = next(step["run"] for step in job["steps"] if "snowredis" in step.get("run", ""))
    command = build_parser().parse_args(shlex.split(create, comments=True)[1:])
    assert command.pool == job["env"]["SNOWREDIS_POOL"]


def test_kubernetes_gives_pods_and_job_the_same_settings() -> None:
    config, secret, budget, deployment = documents("kubernetes.yaml")
    environment = config["data"] | secret["stringData"]
    (web,) = containers("kubernetes.yaml")
    (new_pool,) = containers("kubernetes-new-pool.yaml")
    for container in (web, new_pool):
        assert container["envFrom"] == [
            {"configMapRef": {"name": config["metadata"]["name"]}},
            {"secretRef": {"name": secret["metadata"]["name"]}},
        ]
    own = {variable["name"]: "web-7d4b9c6f5-x2x8k" for variable in web["env"]}
    check_environment(environment | own)
    assert build_parser().parse_args(new_pool["command"][1:]).pool == environment["SNOWREDIS_POOL"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    for selecting in (deployment, budget):
        assert selecting["spec"]["selector"]["matchLabels"].items() <= labels.items()
    ports = {port["name"] for port in web["ports"]}
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert web[probe]["httpGet"]["port"] in ports
    # a first worker may wait for the floor, with failover_slack
    floor = PoolConfig(name="orders", failover_slack_ms=17_500).floor_ms
    assert web["startupProbe"]["periodSeconds"] * web["startupProbe"]["failureThreshold"] * 1000 > floor


def succeeds(client: httpx.Client, request: httpx.Request) -> bool:
    return client.send(request).is_success


def test_kubernetes_runs_the_service_with_probes_that_it_has(tmp_path: Path) -> None:
    secret, budget, service, deployment = documents("kubernetes-serve.yaml")
    (ids,) = containers("kubernetes-serve.yaml")
    pod = deployment["spec"]["template"]
    for selector in (
        deployment["spec"]["selector"]["matchLabels"],
        budget["spec"]["selector"]["matchLabels"],
        service["spec"]["selector"],
    ):
        assert selector.items() <= pod["metadata"]["labels"].items()
    own = {variable["name"]: variable.get("value") for variable in ids["env"]}
    assert own["SNOWREDIS_URL"] is None
    drain_s = float(own["SNOWREDIS_SERVE_DRAIN_S"])
    assert pod["spec"]["terminationGracePeriodSeconds"] > drain_s + GRACE_S + 1
    # it starts as it stands, but for the addresses
    (tmp_path / "token").write_text(secret["stringData"]["token"])
    addresses = {"0.0.0.0": "127.0.0.1", "/run/secrets/ids/token": str(tmp_path / "token")}
    arguments = [addresses.get(part, part) for part in ids["command"][1:]]
    port = free_port()
    with redis_server(tmp_path) as server:
        snowredis.WorkerPool(server.url, "orders").create(PoolConfig(name="orders"))
        process = subprocess.Popen(
            [sys.executable, "-m", "snowredis", *arguments, "--port", str(port)],
            env={**os.environ, "SNOWREDIS_URL": server.url, "SNOWREDIS_SERVE_DRAIN_S": "0"},
        )
        try:
            for probe in ("readinessProbe", "livenessProbe"):
                # as the kubelet does, without a token and by the address of the pod
                request = httpx.Request(
                    "GET", f"http://127.0.0.1:{port}{ids[probe]['httpGet']['path']}", headers={"Host": "10.1.2.3"}
                )
                with httpx.Client() as kubelet:
                    eventually(partial(succeeds, kubelet, request), ignored=(httpx.HTTPError,))
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


@pytest.mark.parametrize("name", ["kubernetes.yaml", "kubernetes-serve.yaml", "kubernetes-new-pool.yaml"])
def test_no_container_in_kubernetes_runs_as_root(name: str) -> None:
    for document in documents(name):
        if "template" in document.get("spec", {}):
            context = document["spec"]["template"]["spec"]["securityContext"]
            assert context["runAsNonRoot"]
            assert f"USER {context['runAsUser']}\n" in (DEPLOY / "Dockerfile").read_text("utf-8")


def test_the_unit_names_settings_and_hooks_that_exist(tmp_path: Path) -> None:
    text = (DEPLOY / "orders-web.service").read_text("utf-8")
    variables = dict(line.split("=", 1) for line in re.findall(r"^Environment=(.*)$", text, re.MULTILINE))
    check_environment(variables)
    command = next(line for line in text.splitlines() if line.startswith("ExecStart="))
    importlib.import_module(re.findall(r"python:(\S+)", command)[0])
    if shutil.which("systemd-analyze"):
        unit = tmp_path / "orders-web.service"
        unit.write_text(text.replace("/srv/orders/bin/gunicorn", sys.executable))
        done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, "")


def test_the_dockerfile_starts_the_server_without_a_shell() -> None:
    lines = (DEPLOY / "Dockerfile").read_text("utf-8").splitlines()
    command = json.loads(lines[-1].removeprefix("CMD "))
    hooks = command[command.index("--config") + 1]
    importlib.import_module(hooks.removeprefix("python:"))


def test_the_configurations_of_uwsgi_and_apache_have_what_the_page_says() -> None:
    uwsgi = configparser.ConfigParser()
    uwsgi.read(DEPLOY / "uwsgi.ini")
    assert {"master", "enable-threads", "die-on-term"} <= set(uwsgi["uwsgi"])
    assert "WSGIApplicationGroup %{GLOBAL}\n" in (DEPLOY / "apache.conf").read_text("utf-8")


def test_the_worker_releases_its_worker_id_at_sigterm(tmp_path: Path) -> None:
    with redis_server(tmp_path) as server:
        pool = snowredis.WorkerPool(server.url, "orders")
        pool.create(PoolConfig(name="orders"))
        process = subprocess.Popen(
            [sys.executable, DEPLOY / "worker.py"],
            env={**os.environ, "PYTHONPATH": str(ROOT), "SNOWREDIS_URL": server.url, "SNOWREDIS_POOL": "orders"},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert int(process.stdout.readline()) > 0
        assert [worker.pid for worker in pool.workers()] == [process.pid]
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
        assert process.returncode == -signal.SIGTERM
        assert list(pool.workers()) == []
