"""Celery, unmodified, while its workers, fronts and brokers are killed: no task is lost."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, final

import pytest
import trio

from tests.paths import ROOT
from tests.system.integration.nodes import Nodes
from tests.system.integration.processes import environment
from tests.system.sqs_trials.balancer import serve_balanced
from tests.system.sqs_trials.front_processes import FrontProcesses
from tests.system.sqs_trials.secured import FRONT_OPTIONS, access_key, secured_options
from tests.system.sqs_trials.sqs_connection import AccessKey

TASKS: Final = 1_500
FAULTS: Final = ("worker", "front", "broker", "worker", "broker", "front", "worker", "broker")
MODULE: Final = "tests.system.sqs_trials.celery_tasks"
VISIBILITY_S: Final = 10
RULES: Final = ("create,describe,send,receive,settle queue trial", "create topic trial")
"""Rules of the user that sends tasks and runs workers; the queue is that of `celery_tasks`."""


@final
class CeleryTrial:
    """Three brokers, two fronts behind a balancer, and two Celery workers."""

    def __init__(
        self, nodes: Nodes, fronts: FrontProcesses, key: AccessKey, *, folder: Path, port: int
    ) -> None:
        self.nodes = nodes
        self.fronts = fronts
        self._folder = folder
        self._variables = environment(
            TRIAL_FOLDER=str(folder),
            AWS_ENDPOINT_URL=f"http://127.0.0.1:{port}",
            AWS_DEFAULT_REGION="us-east-1",
            AWS_ACCESS_KEY_ID=key.key_id,
            AWS_SECRET_ACCESS_KEY=key.secret,
            PYTHONWARNINGS="ignore",
        )
        self._workers: dict[int, trio.Process] = {}

    async def start_worker(self, number: int) -> None:
        """Start a worker with processes of its own."""
        with (self._folder / f"worker-{number}.log").open("ab") as log:
            self._workers[number] = await trio.lowlevel.open_process(
                [
                    *(sys.executable, "-m", "celery", "--app", MODULE, "worker"),
                    *("--hostname", f"worker-{number}@trial", "--loglevel", "WARNING"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=ROOT,
                env=self._variables,
                start_new_session=True,
            )

    async def kill_worker(self, number: int) -> None:
        """Kill a worker and its processes with SIGKILL."""
        process = self._workers.pop(number)
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()

    async def run(self, *arguments: str) -> str:
        """Run a program of Celery to its end; return its output."""
        done = await trio.run_process(
            [sys.executable, *arguments],
            capture_stdout=True,
            cwd=ROOT,
            env=self._variables,
        )
        return done.stdout.decode()

    def ledger(self) -> list[dict[str, Any]]:
        """Return what workers and tasks have noted."""
        path = self._folder / "ledger"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def runs(self) -> Counter[int]:
        """Return how often each task has run."""
        return Counter(line["number"] for line in self.ledger() if "number" in line)

    async def wait_done(self, count: int) -> None:
        """Wait until so many different tasks have run."""
        while len(self.runs()) < count:  # noqa: ASYNC110  (a file)
            await trio.sleep(0.1)

    async def inject(self, kind: str, turn: int) -> None:
        """Kill a process of a kind, and start it again."""
        if kind == "worker":
            await self.kill_worker(turn % 2)
            await self.start_worker(turn % 2)
        elif kind == "front":
            await self.fronts.kill(turn % 2)
            await self.fronts.start(turn % 2)
        else:
            node_id = self.nodes.ids[turn % 3]
            await self.nodes.kill_and_wait(node_id)
            await self.nodes.start(node_id)

    async def stop(self) -> None:
        """Kill all workers and fronts."""
        for number in list(self._workers):
            await self.kill_worker(number)
        await self.fronts.stop()


@pytest.fixture(autouse=True)
def _profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


@asynccontextmanager
async def celery_trial(folder: Path) -> AsyncGenerator[CeleryTrial, None]:
    """Start everything, and kill it at the end."""
    (folder / "results").mkdir()
    async with trio.open_nursery() as nursery:
        nodes = Nodes(folder / "brokers", nursery, *secured_options(folder))
        await nodes.start(*nodes.ids)
        key = await access_key(folder, nodes.addresses, RULES)
        fronts = FrontProcesses(nodes.addresses, 2, *FRONT_OPTIONS)
        for number in range(2):
            await fronts.start(number)
        port: int = await nursery.start(serve_balanced, fronts.ports)
        trial = CeleryTrial(nodes, fronts, key, folder=folder, port=port)
        try:
            for number in range(2):
                await trial.start_worker(number)
            yield trial
        finally:
            with trio.CancelScope(shield=True):
                await trial.stop()
            nursery.cancel_scope.cancel()


async def test_no_task_is_lost_while_everything_is_killed(tmp_path: Path) -> None:
    async with celery_trial(tmp_path) as trial, trio.open_nursery() as nursery:
        nursery.start_soon(trial.run, "-m", MODULE, str(TASKS))
        for turn, kind in enumerate(FAULTS):
            await trial.wait_done((turn + 1) * TASKS // (len(FAULTS) + 1))
            await trial.inject(kind, turn)
        await trial.wait_done(TASKS)

        runs = trial.runs()
        deliveries = [line for line in trial.ledger() if "message" in line]
    again = sum(line["count"] > 1 for line in deliveries)
    sys.stdout.write(
        f"{TASKS} tasks ran, {runs.total() - TASKS} of them twice or more; of {len(deliveries)}"
        f" deliveries {again} came after a visibility timeout\n"
    )
    assert sorted(runs) == list(range(TASKS))
    receives = Counter((line["message"], line["count"]) for line in deliveries)
    assert set(receives.values()) == {1}, "two receives had one message at a time"
    for line in deliveries:
        hidden_s = (line["count"] - 1) * VISIBILITY_S
        assert line["at"] - line["first"] > hidden_s - 0.1, line


async def test_chords_end_with_the_sum(tmp_path: Path) -> None:
    async with celery_trial(tmp_path) as trial:
        said = await trial.run("-c", f"from {MODULE} import run_chord; print(run_chord(100))")

    assert said == "4950\n"
