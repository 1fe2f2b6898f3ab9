"""A real Prometheus with short intervals, and what its HTTP API says."""

import json
import subprocess
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final, final
from urllib.parse import urlencode

import trio
import yaml

from tests.paths import ROOT
from tests.system.integration.nodes import free_ports
from tests.system.integration.processes import DEADLINE_S

PROGRAMS: Final = ("prometheus", "promtool")
RULES: Final = ROOT / "deploy" / "prometheus" / "tidelog.rules.yml"
OF_THE_MACHINE: Final = frozenset({"DiskAlmostFull", "LoopLag"})
"""Alerts that a busy machine or a full disk may fire in any test."""
_INTERVAL: Final = "1s"
_BETWEEN_LOOKS_S: Final = 0.2

Labels = dict[str, str]
Targets = Mapping[str, Sequence[str]]
"""Addresses by cluster."""


class QueryError(Exception):
    """Prometheus refused a request."""


@final
class Prometheus:
    """A running Prometheus."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def samples(self, expression: str) -> list[tuple[Labels, float]]:
        """Return labels and values of an expression at present.

        Raises:
            QueryError: The expression is not valid for the present series.
        """
        result = await self._get("/api/v1/query", query=expression)
        return [(each["metric"], float(each["value"][1])) for each in result["result"]]

    async def firing(self) -> list[Labels]:
        """Return the labels of all alerts that fire."""
        result = await self._get("/api/v1/alerts")
        return [each["labels"] for each in result["alerts"] if each["state"] == "firing"]

    async def unhealthy_rules(self) -> list[str]:
        """Return errors of the evaluation of rules, and rules that were not evaluated yet."""
        result = await self._get("/api/v1/rules")
        return [
            f"{rule['name']}: {rule['health']} {rule.get('lastError', '')}"
            for group in result["groups"]
            for rule in group["rules"]
            if rule["health"] != "ok"
        ]

    async def wait_alerts(self, condition: Callable[[list[Labels]], bool]) -> list[Labels]:
        """Wait until the alerts that fire fulfil a condition, and return them."""
        while True:
            alerts = await self.firing()
            if condition(alerts):
                return alerts
            await trio.sleep(_BETWEEN_LOOKS_S)

    async def wait_samples(self, expression: str, value: float) -> None:
        """Wait until an expression has one sample, with this value."""
        while True:
            if [sample for _, sample in await self.samples(expression)] == [value]:
                return
            await trio.sleep(_BETWEEN_LOOKS_S)

    async def wait_ready(self) -> None:
        """Wait until Prometheus answers queries."""
        while True:
            try:
                await self.samples("vector(1)")
            except (OSError, QueryError):
                await trio.sleep(_BETWEEN_LOOKS_S)
            else:
                return

    async def _get(self, path: str, **parameters: str) -> dict[str, Any]:
        return await trio.to_thread.run_sync(
            self._get_blocking, f"{path}?{urlencode(parameters)}", abandon_on_cancel=True
        )

    def _get_blocking(self, path: str) -> dict[str, Any]:
        connection = HTTPConnection("127.0.0.1", self._port)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            body = response.read().decode()
        finally:
            connection.close()
        if response.status != 200:
            raise QueryError(f"{response.status} {body}")
        data: dict[str, Any] = json.loads(body)["data"]
        return data


def names(alerts: Iterable[Labels]) -> set[str]:
    """Return the names of alerts."""
    return {each["alertname"] for each in alerts}


@asynccontextmanager
async def prometheus(
    folder: Path, targets: Targets, *, fronts: Targets | None = None
) -> AsyncGenerator[Prometheus, None]:
    """Run Prometheus until the block ends, with the rules of tidelog, whose `for` is one interval.

    `targets` has the addresses of brokers by cluster; the cluster without a name has no label.
    `fronts` has those of SQS fronts in the same way.
    """
    (folder / "rules.yml").write_text(json.dumps(_hasty_rules()), encoding="utf-8")
    configuration = _configuration({"tidelog": targets, "tidelog-sqs": fronts or {}})
    (folder / "prometheus.yml").write_text(json.dumps(configuration), encoding="utf-8")
    (port,) = free_ports(1)
    with trio.fail_after(DEADLINE_S):
        process = await trio.lowlevel.open_process(
            [
                *("prometheus", "--config.file", str(folder / "prometheus.yml")),
                *("--storage.tsdb.path", str(folder / "data"), "--log.level", "error"),
                *("--web.listen-address", f"127.0.0.1:{port}"),
            ],
            stdin=subprocess.DEVNULL,
        )
        try:
            running = Prometheus(port)
            await running.wait_ready()
            yield running
        finally:
            with trio.CancelScope(shield=True):
                process.kill()
                await process.wait()


def _hasty_rules() -> dict[str, Any]:
    rules: dict[str, Any] = yaml.safe_load(RULES.read_text(encoding="utf-8"))
    for group in rules["groups"]:
        for rule in group["rules"]:
            if "for" in rule:
                rule["for"] = _INTERVAL
    return rules


def _configuration(jobs: Mapping[str, Targets]) -> dict[str, Any]:
    return {
        "global": {
            "scrape_interval": _INTERVAL,
            "scrape_timeout": _INTERVAL,
            "evaluation_interval": _INTERVAL,
            "external_labels": {"tidelog_docs": "https://docs.example"},
        },
        "rule_files": ["rules.yml"],
        "scrape_configs": [
            {
                "job_name": job,
                "static_configs": [
                    {
                        "targets": list(addresses),
                        "labels": {"cluster": cluster} if cluster else {},
                    }
                    for cluster, addresses in targets.items()
                ],
            }
            for job, targets in jobs.items()
        ],
    }
