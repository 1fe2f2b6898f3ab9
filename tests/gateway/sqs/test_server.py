"""The SQS front over a broker of this process: HTTP in, records out."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
import trio

import tidelog
from tests.gateway.sqs.http_client import HttpClient, HttpReply
from tidelog.gateway.sqs.http.front_server import FrontLimits
from tidelog.gateway.sqs.listen_address import ListenAddress
from tidelog.gateway.sqs.server import FrontConfig, open_front
from tidelog.wire.errors import ConfigError

OPEN = FrontConfig(
    ListenAddress("127.0.0.1", 0), checks_signatures=False, limits=FrontLimits(drain_s=1.0)
)


@asynccontextmanager
async def open_port(data_dir: Path) -> AsyncGenerator[int, None]:
    """Run a broker on `data_dir` and a front that checks no signatures; yield its port."""
    async with (
        tidelog.open_broker(data_dir) as broker,
        tidelog.connect(broker.address) as client,
        open_front(client, OPEN) as front,
    ):
        yield front.address[1]


def content(reply: HttpReply) -> dict[str, str]:
    return msgspec.json.decode(reply.body, type=dict[str, str])


async def test_a_message_of_the_front_is_a_record(tmp_path: Path) -> None:
    async with open_port(tmp_path) as port, HttpClient.connected(port) as http:
        url = content(await http.ask("CreateQueue", QueueName="jobs"))["QueueUrl"]
        sent = content(await http.ask("SendMessage", QueueUrl=url, MessageBody="hello"))
        reply = await http.ask("ReceiveMessage", QueueUrl=url)
        metrics = await http.get("/metrics")

    (message,) = msgspec.json.decode(reply.body)["Messages"]
    assert url == f"http://127.0.0.1:{port}/000000000000/jobs"
    assert message["Body"] == "hello"
    assert message["MessageId"] == sent["MessageId"]
    assert len(reply.headers["x-amzn-requestid"]) == 36
    assert b'tidelog_sqs_requests_total{action="SendMessage",error=""} 1\n' in metrics.body
    assert metrics.value_of("tidelog_sqs_connections") == 1


async def test_errors_have_the_names_of_both_protocols_and_are_counted(tmp_path: Path) -> None:
    async with open_port(tmp_path) as port, HttpClient.connected(port) as http:
        missing = await http.ask("GetQueueUrl", QueueName="none")
        unknown = await http.ask("Dance")
        metrics = await http.get("/metrics")

    assert missing.status == 400
    assert missing.headers["x-amzn-query-error"] == (
        "AWS.SimpleQueueService.NonExistentQueue;Sender"
    )
    assert content(missing)["__type"].endswith("#QueueDoesNotExist")
    assert content(unknown)["__type"].endswith("#UnknownOperationException")
    counted = b'tidelog_sqs_requests_total{action="GetQueueUrl",error="QueueDoesNotExist"} 1\n'
    assert counted in metrics.body


async def test_nothing_stays_leased_for_a_client_that_hung_up(tmp_path: Path) -> None:
    async with open_port(tmp_path) as port, HttpClient.connected(port) as http:
        url = content(await http.ask("CreateQueue", QueueName="jobs"))["QueueUrl"]
        async with HttpClient.connected(port) as poller:
            await poller.send("ReceiveMessage", QueueUrl=url, WaitTimeSeconds=20)
            while (await http.get("/metrics")).value_of("tidelog_sqs_receives_under_way") == 0:
                pass
        while (await http.get("/metrics")).value_of("tidelog_sqs_receives_under_way") == 1:
            pass
        await http.ask("SendMessage", QueueUrl=url, MessageBody="hello")
        reply = await http.ask("ReceiveMessage", QueueUrl=url, WaitTimeSeconds=20)
        abandoned = (await http.get("/metrics")).value_of("tidelog_sqs_abandoned_receives_total")

    assert len(msgspec.json.decode(reply.body)["Messages"]) == 1
    assert abandoned == 1


async def test_probes_learn_whether_a_broker_answers(tmp_path: Path, nursery: trio.Nursery) -> None:
    ending, ended = trio.Event(), trio.Event()

    async def run_broker(task_status: trio.TaskStatus[str]) -> None:
        async with tidelog.open_broker(tmp_path) as broker:
            task_status.started(broker.address)
            await ending.wait()
        ended.set()

    address = await nursery.start(run_broker)
    async with (
        tidelog.connect(address) as client,
        open_front(client, OPEN) as front,
        HttpClient.connected(front.address[1]) as http,
    ):
        before = await http.get("/ready?verbose")
        ending.set()
        await ended.wait()
        after, health = await http.get("/ready"), await http.get("/health")

    assert before.status == health.status == 200
    assert after.status == 503
    assert "reason" in msgspec.json.decode(after.body)


async def test_a_front_without_signatures_serves_this_machine_alone(tmp_path: Path) -> None:
    config = OPEN._replace(listen=ListenAddress("0.0.0.0", 0))
    async with tidelog.open_broker(tmp_path) as broker, tidelog.connect(broker.address) as client:
        with pytest.raises(ConfigError, match="other machines reach that address"):
            async with open_front(client, config):
                pass


async def test_a_taken_address_is_named(tmp_path: Path) -> None:
    async with (
        tidelog.open_broker(tmp_path) as broker,
        tidelog.connect(broker.address) as client,
        open_front(client, OPEN) as front,
    ):
        config = OPEN._replace(listen=ListenAddress(*front.address))
        with pytest.raises(ConfigError, match="is another front running there"):
            async with open_front(client, config):
                pass
