"""The configurations of nginx and HAProxy in `deploy/sqs/`, before two fronts that are killed."""

import re
import shutil
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import boto3
import pytest
import trio
import trustme
from botocore.config import Config
from botocore.exceptions import ReadTimeoutError
from trio.to_thread import run_sync as to_thread

from tests.gateway.sqs.http_client import HttpClient
from tests.paths import ROOT
from tests.system.integration.nodes import free_ports
from tests.system.integration.processes import serving
from tests.system.sqs_trials.front_processes import FrontProcesses
from tests.system.sqs_trials.secured import FRONT_OPTIONS, access_key, secured_options

RULES: Final = ("create,describe,send,receive,settle queue jobs", "create topic jobs")
MESSAGES: Final = 400


class Proxied(NamedTuple):
    """Two fronts behind a proxy with TLS."""

    fronts: FrontProcesses
    options: dict[str, Any]
    """Options of `boto3.client` for the proxy."""


def nginx(text: str, folder: Path) -> list[str]:
    """Write the configuration; return the command."""
    (folder / "nginx.conf").write_text(
        f"daemon off; pid {folder}/pid; error_log stderr; events {{}} http {{ access_log off;\n"
        f"client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;\n{text}}}\n"
    )
    return ["nginx", "-p", str(folder), "-c", str(folder / "nginx.conf")]


def haproxy(text: str, folder: Path) -> list[str]:
    """Write the configuration; return the command."""
    (folder / "haproxy.cfg").write_text(text)
    return ["haproxy", "-db", "-f", str(folder / "haproxy.cfg")]


PROXIES: Final = {"nginx.conf": nginx, "haproxy.cfg": haproxy}


@asynccontextmanager
async def proxied(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncGenerator[Proxied, None]:
    """Run a broker that enforces access, two fronts, and a proxy with a configuration."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder))
    (port,) = free_ports(1)
    url = f"https://localhost:{port}"
    async with serving(folder / "data", *secured_options(folder)) as broker:
        key = await access_key(folder, broker.address, RULES)
        fronts = FrontProcesses(broker.address, 2, *FRONT_OPTIONS, "--public-url", url, logs=folder)
        try:
            for number in range(2):
                await fronts.start(number)
            authority = trustme.CA()
            authority.cert_pem.write_to_path(folder / "ca.pem")
            certificate = authority.issue_cert("localhost")
            certificate.private_key_and_cert_chain_pem.write_to_path(folder / "both.pem")
            text = (ROOT / "deploy" / "sqs" / name).read_text()
            text = re.sub(r"/etc/\w+/\S+\.(pem|key)", str(folder / "both.pem"), text)
            text = text.replace("443", str(port), 1).replace("sqs.example.com;", "localhost;")
            for old, new in zip((9324, 9325), fronts.ports, strict=True):
                text = re.sub(rf"(server .*127\.0\.0\.1:){old}", rf"\g<1>{new}", text)
            command = PROXIES[name](text, folder)
            async with trio.open_nursery() as nursery:
                await nursery.start(partial(trio.run_process, command))
                options = {
                    "endpoint_url": url,
                    "region_name": "us-east-1",
                    "aws_access_key_id": key.key_id,
                    "aws_secret_access_key": key.secret,
                    "verify": str(folder / "ca.pem"),
                    "config": Config(retries={"max_attempts": 5}),
                }
                yield Proxied(fronts, options)
                nursery.cancel_scope.cancel()
        finally:
            with trio.CancelScope(shield=True):
                await fronts.stop()


async def _sum(ports: Sequence[int], metric: str) -> float:
    """Return the sum of a metric of fronts."""
    total = 0.0
    for port in ports:
        async with HttpClient.connected(port) as http:
            total += (await http.get("/metrics")).value_of(metric)
    return total


@pytest.mark.parametrize("name", PROXIES)
async def test_a_hang_up_leaves_nothing_leased_and_a_dead_front_loses_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = Path(name).stem
    if shutil.which(program) is None:
        pytest.skip(f"the trial is left out: {program} not found")
    async with proxied(name, tmp_path, monkeypatch) as trial:
        sqs, ports = boto3.client("sqs", **trial.options), trial.fronts.ports
        created = await to_thread(partial(sqs.create_queue, QueueName="jobs"))
        url = created["QueueUrl"]
        assert url.startswith(trial.options["endpoint_url"])

        config = Config(read_timeout=3, retries={"max_attempts": 0})
        hasty = boto3.client("sqs", **{**trial.options, "config": config})
        with pytest.raises(ReadTimeoutError):
            await to_thread(partial(hasty.receive_message, QueueUrl=url, WaitTimeSeconds=20))
        while await _sum(ports, "tidelog_sqs_receives_under_way") > 0:  # noqa: ASYNC110
            await trio.sleep(0.1)
        assert await _sum(ports, "tidelog_sqs_abandoned_receives_total") == 1
        await to_thread(partial(sqs.send_message, QueueUrl=url, MessageBody="first"))

        def receive_all() -> dict[str, int]:
            """Return how often each message was received, and delete them."""
            counts: dict[str, int] = {}
            receive = partial(
                sqs.receive_message,
                QueueUrl=url,
                MaxNumberOfMessages=10,
                WaitTimeSeconds=2,
                AttributeNames=["ApproximateReceiveCount"],
            )
            while messages := receive().get("Messages"):
                for each in messages:
                    counts[each["Body"]] = int(each["Attributes"]["ApproximateReceiveCount"])
                    sqs.delete_message(QueueUrl=url, ReceiptHandle=each["ReceiptHandle"])
            return counts

        assert await to_thread(receive_all) == {"first": 1}

        sender, sent = boto3.client("sqs", **trial.options), list[str]()

        def send_all() -> None:
            for number in range(MESSAGES):
                sender.send_message(QueueUrl=url, MessageBody=str(number))
                sent.append(str(number))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(to_thread, send_all)
            for number in range(2):
                while len(sent) < (number + 1) * MESSAGES // 3:  # noqa: ASYNC110  (a thread)
                    await trio.sleep(0.01)
                await trial.fronts.kill(number)
                await trial.fronts.start(number)
        received = await to_thread(receive_all)

    assert set(received) == set(sent) == {str(number) for number in range(MESSAGES)}
