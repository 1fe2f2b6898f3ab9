"""Brokers as child processes; `tests/system/integration` has those that work."""

import json
from pathlib import Path

import pytest
import trio

from tidelog.broker.config.broker_config import BrokerConfig
from tidelog.cli.errors import CommandError
from tidelog.cli.serve.workers import marked, run_workers


def test_a_line_says_which_worker_wrote_it() -> None:
    assert marked(b"12:00:01 INFO broker_started", 2) == b"[2] 12:00:01 INFO broker_started"


def test_a_line_of_json_stays_json() -> None:
    line = json.dumps({"event": "broker_started", "node_id": 7}).encode()

    assert json.loads(marked(line, 2)) == {"worker": 2, "event": "broker_started", "node_id": 7}


async def test_workers_that_cannot_start_are_reported_by_number(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    plans = [
        BrokerConfig(data_dir=str(tmp_path / "file" / name), listen="127.0.0.1:0") for name in "12"
    ]

    with pytest.raises(CommandError) as refused:
        await run_workers(plans, config_file=None)

    assert str(refused.value).startswith("workers 1, 2 failed")
    assert [record.getMessage() for record in caplog.records] == ["worker_ended"] * 2


async def test_a_worker_is_killed_when_its_run_is_cancelled(tmp_path: Path) -> None:
    plan = BrokerConfig(data_dir=str(tmp_path), listen="127.0.0.1:0")
    async with trio.open_nursery() as nursery:

        async def run() -> None:
            await run_workers([plan], config_file=None)

        nursery.start_soon(run)
        while not (tmp_path / "metadata").exists():  # noqa: ASYNC110  (a file tells no task)
            await trio.sleep(0.01)
        nursery.cancel_scope.cancel()

    assert not (tmp_path / "clean-shutdown").exists()
