"""Tests of `tidelog serve` as a process: signals, the state after its end, and start errors."""

import os
import signal
import socket
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import trio

import tidelog
from tests.system.integration.processes import only_line, run_tidelog, serving
from tests.system.integration.raw_client import StalledReader

CLEAN_MARKER = "clean-shutdown"
RECOVERY_EVENTS = {"log_recovered", "log_damaged", "log_note"}


async def produce(address: str, count: int) -> None:
    async with tidelog.connect(address) as client:
        await client.admin.create_topic("orders", segment_bytes="4MiB")
        async with client.producer() as producer:
            await producer.send_many("orders", [b"x" * 100] * count)


async def consume_all(address: str) -> int:
    async with (
        tidelog.connect(address) as client,
        client.consumer("orders", auto_offset_reset="earliest") as consumer,
    ):
        ends = await consumer.end_offsets()
        return sum([len(batch) async for batch in consumer.batches(ends)])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_stops_the_broker_cleanly_and_the_next_start_scans_nothing(
    tmp_path: Path, number: signal.Signals
) -> None:
    async with serving(tmp_path) as broker:
        await produce(broker.address, 1000)
        broker.signal(number)
        status = await broker.wait_ended()
    was_marked = (tmp_path / CLEAN_MARKER).exists()
    async with serving(tmp_path) as again:
        events = again.events

    assert status == 0
    assert broker.event("broker_stopped")["is_clean"] is True
    assert was_marked
    assert again.event("broker_started")["was_clean"] is True
    assert RECOVERY_EVENTS.isdisjoint(event["event"] for event in events)
    assert not (tmp_path / CLEAN_MARKER).exists(), "the mark must go before anything is written"


async def test_a_kill_leaves_no_clean_marker_and_the_next_start_reports_it(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        await produce(broker.address, 1000)
        broker.signal(signal.SIGKILL)
        await broker.wait_ended()
    was_marked = (tmp_path / CLEAN_MARKER).exists()
    async with serving(tmp_path) as again:
        pass

    assert not was_marked
    assert again.event("broker_started")["was_clean"] is False


async def test_a_second_signal_stops_the_broker_at_once(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        await produce(broker.address, 200_000)
        with StalledReader(broker.address) as stalled:
            # The shutdown waits for replies that this client does not read.
            stalled.ask_for_everything("orders")
            broker.signal(signal.SIGINT)
            await broker.wait_event("broker_stopping")
            broker.signal(signal.SIGINT)
            status = await broker.wait_ended()

    assert status == -signal.SIGINT
    assert "broker_stopped" not in broker.names()


async def test_the_start_line_has_the_address_and_the_data_directory(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        await broker.wait_until(lambda: any("listening on" in name for name in broker.names()))

    (line,) = (name for name in broker.names() if "listening on" in name)
    assert line.startswith("tidelog ")
    assert line.endswith(f" listening on {broker.address}, data in {tmp_path}")


async def test_the_broker_raises_its_open_file_limit_to_the_maximum(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        limits = await trio.Path(f"/proc/{broker.pid}/limits").read_text(encoding="ascii")

    (line,) = (line for line in limits.splitlines() if line.startswith("Max open files"))
    _, _, _, soft, hard, _ = line.split()
    assert soft == hard


async def test_silent_connections_keep_out_no_client_under_a_low_limit_of_open_files(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path, limits="-n 256") as broker, AsyncExitStack() as strangers:
        warning = broker.event("open_files_limit_is_low")
        host, _, port = broker.address.rpartition(":")
        for _ in range(300):
            await strangers.enter_async_context(await trio.open_tcp_stream(host, int(port)))

        async with tidelog.connect(broker.address, request_timeout=5) as client:
            await client.admin.create_topic("orders", 20)
            settings = {each.name: each for each in (await client.admin.broker_config()).settings}

    assert (warning["level"], warning["limit"], warning["wanted"]) == ("warning", 256, 10_576)
    assert warning["max_connections"] == warning["max_open_files"] == 96
    assert settings["max_connections"].source == "limit of open files"


async def test_two_brokers_do_not_share_a_data_directory(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        second = await run_tidelog("serve", "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0")

    assert second.returncode == 1
    assert only_line(second) == (
        f"error: data directory {tmp_path} is in use by process {broker.pid};"
        " stop it or choose another --data-dir"
    )


async def test_a_port_in_use_is_reported_in_one_line(tmp_path: Path) -> None:
    async with serving(tmp_path / "first") as broker:
        second = await run_tidelog(
            "serve", "--data-dir", str(tmp_path / "second"), "--listen", broker.address
        )

    assert second.returncode == 1
    assert only_line(second).startswith(
        f"error: cannot listen on {broker.address}: Address already in use"
    )


async def test_a_data_directory_of_another_node_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path, "--node-id", "4"):
        pass

    other = await run_tidelog("serve", "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0")

    assert other.returncode == 1
    assert only_line(other) == (
        f"error: {tmp_path} belongs to node 4, this is node 1;"
        " use --node-id 4 or another --data-dir"
    )


async def test_an_invalid_data_directory_is_reported_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")

    result = await run_tidelog("serve", "--data-dir", str(tmp_path / "file"))

    assert result.returncode == 1
    assert only_line(result).startswith(
        f"error: data directory {tmp_path / 'file'} cannot be created: "
    )


async def test_python_without_assertions_is_refused(tmp_path: Path) -> None:
    result = await run_tidelog("serve", "--data-dir", str(tmp_path), PYTHONOPTIMIZE="1")

    assert result.returncode == 1
    assert only_line(result).startswith("error: tidelog keeps its assertions")


async def test_a_vanishing_or_malformed_client_affects_no_other_client(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        host, port = broker.address.split(":")
        vanishing = socket.create_connection((host, int(port)))
        vanishing.sendall(b"\x00\x00\x01\x00half a fra")
        # Closed with a reset: the sent bytes are not even delivered in order.
        vanishing.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        vanishing.close()
        babbling = socket.create_connection((host, int(port)))
        babbling.sendall(os.urandom(4096))
        await produce(broker.address, 100)
        await broker.wait_event("connection_refused")
        babbling.close()
        broker.signal(signal.SIGTERM)
        status = await broker.wait_ended()

    assert status == 0
    assert not [event for event in broker.events if event["level"] == "error"]


async def test_a_client_that_stops_reading_costs_bounded_memory_and_blocks_no_other(
    tmp_path: Path,
) -> None:
    config = tmp_path / "tidelog.toml"
    config.write_text("shutdown_grace_ms = 100\n", encoding="ascii")
    async with serving(tmp_path / "data", "--config", str(config)) as broker:
        await produce(broker.address, 200_000)
        before_kb = resident_kb(broker.pid)
        with StalledReader(broker.address) as stalled:
            stalled.ask_for_everything("orders", times=50)
            count = await consume_all(broker.address)
            after_kb = resident_kb(broker.pid)
            broker.signal(signal.SIGTERM)
            status = await broker.wait_ended()

    assert count == 200_000
    assert after_kb - before_kb < 64 * 1024, "50 replies of 20 MB each are not held in memory"
    assert status == 0
    assert broker.event("broker_stopped")["is_clean"] is True


def resident_kb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS:")).split()[1])
