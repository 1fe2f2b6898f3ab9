"""Tests of encryption at rest with real processes: kills, a key command, rotation under load."""

import signal
from pathlib import Path

import pytest
import trio

import tidelog
from tests.system.integration.processes import DEADLINE_S, serving
from tidelog.cli import main

TOPIC = "orders"


async def read_all(client: tidelog.Client) -> set[bytes | None]:
    async with client.consumer(TOPIC, auto_offset_reset="earliest") as consumer:
        end = await consumer.end_offsets()
        return {record.value async for record in consumer.records(end)}


async def test_killed_brokers_lose_no_record_while_keys_are_rotated(tmp_path: Path) -> None:
    key_file, data = tmp_path / "master.key", tmp_path / "data"
    assert main.run(["key", "create-master", str(key_file)]) == 0
    acknowledged: set[bytes | None] = set()
    with trio.fail_after(DEADLINE_S):
        for life in range(3):
            async with serving(data, TIDELOG_MASTER_KEY_COMMAND=f"cat '{key_file}'") as broker:
                async with tidelog.connect(broker.address) as client:
                    if not life:
                        await client.admin.create_topic(TOPIC, config={"encryption": "on"})
                    assert acknowledged <= await read_all(client)
                    async with client.producer() as producer:
                        for number in range(100):
                            value = b"secret %d of life %d" % (number, life)
                            await producer.send(TOPIC, value)
                            acknowledged.add(value)
                            if number % 40 == 20:
                                await client.security.rotate_data_key(TOPIC)
                broker.signal(signal.SIGKILL)
                await broker.wait_ended()
        async with (
            serving(data, TIDELOG_MASTER_KEY_FILE=str(key_file)) as broker,
            tidelog.connect(broker.address) as client,
        ):
            assert acknowledged <= await read_all(client)
            (keys,) = (await client.security.list_keys(TOPIC)).topics
            assert len(keys.keys) == 7
    stored = b"".join(path.read_bytes() for path in data.rglob("*") if path.is_file())
    assert b"of life" not in stored


async def test_a_broker_that_starts_without_its_key_command_truncates_nothing(
    tmp_path: Path,
) -> None:
    key_file, data = tmp_path / "master.key", tmp_path / "data"
    assert main.run(["key", "create-master", str(key_file)]) == 0
    with trio.fail_after(DEADLINE_S):
        async with serving(data, TIDELOG_MASTER_KEY_FILE=str(key_file)) as broker:
            async with tidelog.connect(broker.address) as client, client.producer() as producer:
                await client.admin.create_topic(TOPIC, config={"encryption": "on"})
                await producer.send(TOPIC, b"kept")
            broker.signal(signal.SIGKILL)
            await broker.wait_ended()
        async with serving(data, TIDELOG_MASTER_KEY_COMMAND="false") as broker:
            await broker.wait_until(lambda: "data_keys_unavailable" in broker.names())
            assert "log_damaged" not in broker.names()
            assert broker.names().count("data_keys_unavailable") == 1
            async with (
                tidelog.connect(broker.address) as client,
                client.producer(delivery_timeout=1) as producer,
            ):
                with pytest.raises(tidelog.DeliveryTimeoutError, match="master_key_command failed"):
                    await producer.send(TOPIC, b"refused")
        async with (
            serving(data, TIDELOG_MASTER_KEY_FILE=str(key_file)) as broker,
            tidelog.connect(broker.address) as client,
        ):
            assert await read_all(client) == {b"kept"}
