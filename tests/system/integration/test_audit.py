"""Tests of the audit with real brokers: a killed leader of the topic, and what reaches readers."""

import json
from pathlib import Path
from typing import Any

import pytest
import trio

import tidelog
from tests.system.integration.nodes import Nodes
from tidelog.client.client import Client
from tidelog.wire.errors import AuditUnavailableError
from tidelog.wire.security.audit_topic import AUDIT_TOPIC

Record = dict[str, Any]


def config_file(folder: Path, mode: str) -> str:
    """Return the path of a file with settings."""
    path = folder / f"{mode}.toml"
    path.write_text(f'audit = "{mode}"\n', encoding="utf-8")
    return str(path)


async def audited(client: Client) -> list[Record]:
    """Return the audit records so far."""
    records: list[Record] = []
    async with client.consumer(AUDIT_TOPIC, auto_offset_reset="earliest") as consumer:
        until = await consumer.end_offsets()
        async for batch in consumer.batches(until):
            records += [json.loads(record.value or b"") for record in batch]
    return records


async def leader_of_audit(client: Client) -> int:
    """Wait until the audit topic has a leader and three replicas, and return the leader."""
    while True:
        with trio.move_on_after(1):
            try:
                (topic,) = await client.admin.describe_topics([AUDIT_TOPIC])
            except tidelog.UnknownTopicError:
                await trio.sleep(0.1)
                continue
            (partition,) = topic.partitions
            if partition.leader_id is not None:
                assert len(partition.replicas) == 3
                return partition.leader_id
        await trio.sleep(0.1)


@pytest.mark.parametrize("mode", ["on", "required"])
async def test_records_survive_the_kill_of_the_leader_of_the_audit_topic(
    tmp_path: Path, mode: str
) -> None:
    async with trio.open_nursery() as nursery:
        nodes = Nodes(tmp_path, nursery, "--config", config_file(tmp_path, mode))
        await nodes.start(*nodes.ids)
        async with tidelog.connect(nodes.addresses) as client:
            leader_id = await leader_of_audit(client)
            names = [f"before{number}" for number in range(5)]
            for name in names:
                await client.admin.create_topic(name)
            await nodes.kill_and_wait(leader_id)
            for number in range(5):
                names.append(f"after{number}")
                await client.admin.create_topic(names[-1])
            await nodes.start(leader_id)

            while True:
                records = await audited(client)
                outcomes = [
                    each["resource"].removeprefix("topic:")
                    for each in records
                    if each["action"] == "topic.create" and each["stage"] != "intent"
                ]
                if set(names[5:]) <= set(outcomes):
                    break
                await trio.sleep(0.1)
        nursery.cancel_scope.cancel()

    by_id = {each["id"]: each for each in records}
    assert len(by_id) == len(records), "no record is appended twice"
    if mode == "required":
        intents = {each["resource"] for each in records if each["stage"] == "intent"}
        assert {f"topic:{name}" for name in names} <= intents
        for each in records:
            if each["stage"] == "outcome":
                assert by_id[each["intent"]]["resource"] == each["resource"]


async def test_required_refuses_without_a_leader_and_recovers(tmp_path: Path) -> None:
    async with trio.open_nursery() as nursery:
        nodes = Nodes(tmp_path, nursery, "--config", config_file(tmp_path, "required"))
        await nodes.start(*nodes.ids)
        async with tidelog.connect(nodes.addresses) as client:
            leader_id = await leader_of_audit(client)
            await client.admin.alter_topic(AUDIT_TOPIC, set={"min_insync_replicas": "3"})
            await client.admin.create_topic("orders")
            dead_id = leader_id % 3 + 1
            await nodes.kill_and_wait(dead_id)
            while (await client.admin.describe_cluster()).nodes[dead_id - 1].status != "fenced":  # noqa: ASYNC110
                await trio.sleep(0.2)

            with pytest.raises((AuditUnavailableError, tidelog.RequestTimedOutError)) as refused:
                await client.admin.create_topic("payments")
            assert "payments" not in await client.admin.list_topics()
            # Records still flow, and the audit topic itself can be repaired.
            async with client.producer() as producer:
                await producer.send("orders", b"one")
            await client.admin.alter_topic(AUDIT_TOPIC, set={"min_insync_replicas": "2"})
            await client.admin.create_topic("payments")

            records = await audited(client)
        nursery.cancel_scope.cancel()

    assert "\n" not in str(refused.value)
    of_repair = [
        each["stage"]
        for each in records
        if each["action"] == "topic.alter" and '"2"' in each["detail"].get("set_config", "")
    ]
    assert "intent" in of_repair
    of_payments = [each["result"] for each in records if each["resource"] == "topic:payments"]
    assert "AUDIT_UNAVAILABLE" in of_payments
