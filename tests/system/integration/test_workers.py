"""Tests of `tidelog serve --workers`: one cluster, signals, and a worker that dies."""

import os
import signal
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

import tidelog
from tests.system.integration.processes import BrokerProcess, only_line, run_tidelog, serving

COUNT = 3


def free_ports(count: int) -> int:
    """Return the first of so many consecutive ports without listeners."""
    for first in range(20_000 + os.getpid() % 10_000, 60_000, count):
        with ExitStack() as bound:
            try:
                for port in range(first, first + count):
                    bound.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                continue
            return first
    raise AssertionError("there are no free ports")


def started(workers: BrokerProcess) -> dict[int, dict[str, object]]:
    """Return the start event of each worker, by its number."""
    return {
        event["worker"]: event for event in workers.events if event["event"] == "broker_started"
    }


def names_in(directory: Path) -> list[str]:
    """Return the names in a directory."""
    return sorted(path.name for path in directory.iterdir())


@pytest.fixture
def listen() -> str:
    """Return an address with free ports behind it."""
    return f"127.0.0.1:{free_ports(COUNT)}"


async def test_workers_form_one_cluster_and_stop_cleanly(tmp_path: Path, listen: str) -> None:
    async with serving(tmp_path, "--workers", str(COUNT), listen=listen) as workers:
        await workers.wait_until(lambda: len(started(workers)) == COUNT)
        async with tidelog.connect(listen) as client:
            await client.admin.create_topic("orders", COUNT)
            topics = await client.admin.describe_topics()
            found = await client.admin.describe_cluster()
        workers.signal(signal.SIGINT)
        status = await workers.wait_ended()

    assert status == 0
    assert {node.status for node in found.nodes} == {"alive"}
    assert {node.rack for node in found.nodes} == {socket.gethostname()}
    assert {each.leader_id for each in topics[0].partitions} == {1, 2, 3}
    stops = [event for event in workers.events if event["event"] == "broker_stopped"]
    assert sorted((event["worker"], event["is_clean"]) for event in stops) == [
        (1, True),
        (2, True),
        (3, True),
    ]
    assert names_in(tmp_path) == ["1", "2", "3"]


async def test_a_dead_worker_is_reported_in_one_line_and_the_others_continue(
    tmp_path: Path, listen: str
) -> None:
    async with serving(tmp_path, "--workers", str(COUNT), listen=listen) as workers:
        await workers.wait_until(lambda: len(started(workers)) == COUNT)
        victim = child_in(tmp_path / "2", workers.pid)
        os.kill(victim, signal.SIGKILL)
        ended = await workers.wait_event("worker_ended")
        async with tidelog.connect(listen) as client:
            await client.admin.create_topic("orders")
        workers.signal(signal.SIGTERM)
        status = await workers.wait_ended()

    assert (ended["worker"], ended["node_id"], ended["status"]) == (2, 2, -signal.SIGKILL)
    assert status == 1
    (line,) = workers.other_lines
    assert line == "error: worker 2 failed; see the log lines above for the reason"


async def test_a_second_signal_stops_all_workers_at_once(tmp_path: Path, listen: str) -> None:
    async with serving(tmp_path, "--workers", str(COUNT), listen=listen) as workers:
        await workers.wait_until(lambda: len(started(workers)) == COUNT)
        for number in (2, 3):  # Without them the first cannot hand over, and waits.
            os.kill(child_in(tmp_path / str(number), workers.pid), signal.SIGKILL)
        await workers.wait_until(lambda: workers.names().count("worker_ended") == COUNT - 1)
        workers.signal(signal.SIGTERM)
        await workers.wait_event("broker_stopping")
        workers.signal(signal.SIGTERM)
        status = await workers.wait_ended()

    assert status == 128 + signal.SIGTERM
    assert "broker_stopped" not in workers.names()


async def test_an_invalid_combination_is_reported_before_the_start(tmp_path: Path) -> None:
    options = ["--workers", "2", "--data-dir", str(tmp_path)]
    refused = await run_tidelog("serve", *options, "--listen", "127.0.0.1:0")

    assert refused.returncode == 1
    assert only_line(refused).startswith("error: listen has port 0")
    assert names_in(tmp_path) == []


async def test_workers_agree_on_the_first_administrator(tmp_path: Path, listen: str) -> None:
    file = tmp_path / "admin.toml"
    file.touch(0o600)
    file.write_text('user = "root"\npassword = "correct horse"\n', encoding="ascii")
    options = ["--workers", str(COUNT), "--bootstrap-admin", str(file)]
    async with serving(
        tmp_path / "data",
        *options,
        listen=listen,
        TIDELOG_AUTHENTICATION="required",
        TIDELOG_AUTHORIZATION="enforce",
    ) as workers:
        await workers.wait_until(lambda: len(started(workers)) == COUNT)
        with pytest.raises(tidelog.AuthenticationRequiredError):
            async with tidelog.connect(listen) as client:
                await client.admin.list_topics()
        async with tidelog.connect(listen, user="root", password="correct horse") as client:
            await client.admin.create_topic("orders")
            assert [user.name for user in await client.security.list_users()] == ["root"]
        workers.signal(signal.SIGTERM)  # A kill would leave the workers behind.
        assert await workers.wait_ended() == 0

    assert workers.names().count("administrator_created") == 1
    assert "correct horse" not in str(workers.events)


def child_in(directory: Path, parent: int) -> int:
    """Return the id of the child process with its data in a directory."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        words = path.read_bytes().split(b"\0")
        stat = (path.parent / "stat").read_text(encoding="utf-8")
        parent_of_it = int(stat.rpartition(")")[2].split()[1])
        if parent_of_it == parent and str(directory).encode() in words:
            return int(path.parent.name)
    raise AssertionError(f"no worker has its data in {directory}")
