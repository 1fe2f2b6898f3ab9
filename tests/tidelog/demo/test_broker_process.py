"""A broker in a process of its own."""

import os
import signal
from pathlib import Path

import pytest

import tidelog
from tidelog.demo.broker_process import open_broker_process
from tidelog.demo.errors import DemoFailedError


async def test_it_serves_until_it_is_killed_and_again_on_the_same_address(tmp_path: Path) -> None:
    async with open_broker_process(str(tmp_path)) as first:
        async with tidelog.connect(first.address) as client:
            await client.admin.create_topic("orders")
        first.kill()
        status = await first.wait_ended()
    async with (
        open_broker_process(str(tmp_path), listen=first.address) as second,
        tidelog.connect(second.address) as client,
    ):
        topics = await client.admin.list_topics()

    assert status == -signal.SIGKILL
    assert second.address == first.address
    assert topics == ["orders"]


async def test_a_broker_that_does_not_start_is_quoted(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"")

    with pytest.raises(DemoFailedError, match=r"the broker did not start: error: data directory"):
        async with open_broker_process(str(file)):
            pass


async def test_the_process_ends_with_the_block_also_by_an_error(tmp_path: Path) -> None:
    pids: list[int] = []

    async def fail() -> None:
        async with open_broker_process(str(tmp_path)) as broker:
            pids.append(broker.pid)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()

    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


async def test_settings_for_another_broker_do_not_reach_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDELOG_NODE_ID", "nonsense")

    async with open_broker_process(str(tmp_path)) as broker:
        assert broker.address.startswith("127.0.0.1:")
