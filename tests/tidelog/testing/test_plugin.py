"""The pytest plugin, in suites of users that run in processes of their own."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.paths import ROOT

SYNC = """
import pytest

def test_a_stream(tidelog_client, tidelog_topic, tidelog_broker):
    with tidelog_client.producer() as producer:
        producer.send(tidelog_topic, b"paid")
    assert tidelog_topic.startswith("test_a_stream-")
    assert [record.value for record in tidelog_broker.records(tidelog_topic)] == [b"paid"]

def test_a_queue(tidelog_client, tidelog_queue, tidelog_broker):
    queue = tidelog_client.queue(tidelog_queue)
    queue.send(b"later", delay=60)
    tidelog_broker.advance(61)
    (message,) = queue.receive(wait=0)
    assert message.value == b"later"

@pytest.mark.parametrize("word", ["a b/c", "a" * 300])
def test_names_and_settings(word, tidelog_topic_factory, tidelog_queue_factory, tidelog_client):
    topic, other = tidelog_topic_factory(partitions=3, retention_ms="1h"), tidelog_topic_factory()
    dead = tidelog_queue_factory()
    queue = tidelog_queue_factory(max_receive_count=3, dead_letter_queue=dead)
    (described,) = tidelog_client.admin.describe_topics([topic])
    assert (len(described.partitions), described.config["retention_ms"]) == (3, "1h")
    assert len({topic, other, dead, queue}) == 4

def test_killed(tidelog_broker):
    tidelog_broker.kill()

def test_started_again(tidelog_broker, tidelog_client):
    assert tidelog_broker.is_running
    assert tidelog_client.admin.list_topics() is not None

def test_own_settings(tidelog_broker):
    assert tidelog_broker.http_address
"""
TRIO = """
import pytest
import tidelog

@pytest.mark.trio
async def test_trio(tidelog_address, tidelog_queue, tidelog_broker):
    async with tidelog.connect(tidelog_address) as client:
        await client.queue(tidelog_queue).send(b"later", delay=60)
        tidelog_broker.advance(61)
        (message,) = await client.queue(tidelog_queue).receive(wait=0)
        assert [each.record.value for each in tidelog_broker.messages(tidelog_queue)] == [b"later"]
"""
ASYNCIO = """
import pytest
import tidelog.aio

@pytest.mark.asyncio
async def test_asyncio(tidelog_address, tidelog_queue, tidelog_broker):
    async with tidelog.aio.connect(tidelog_address) as client:
        await client.queue(tidelog_queue).send(b"later", delay=60)
        tidelog_broker.advance(61)
        (message,) = await client.queue(tidelog_queue).receive(wait=0)
        await message.delete()
    assert tidelog_broker.messages(tidelog_queue) == []
    assert [record.value for record in tidelog_broker.records(tidelog_queue)] == [b"later"]
"""
ADDRESS = """
import pytest

@pytest.mark.parametrize("number", range(4))
def test_address(number, tidelog_broker, tidelog_topic, request):
    print(f"<{tidelog_broker.address} {tidelog_broker.data_dir}>")
"""
OWN_SETTINGS = """
import pytest

@pytest.fixture(scope="session")
def tidelog_settings():
    return {"http_listen": "127.0.0.1:0"}
"""
FAILING = """
def test_fails(tidelog_broker, tidelog_topic):
    tidelog_broker.kill()
    tidelog_broker.start()
    assert False, "for the report"
"""
IMPORTS = """
import sys

def test_imports():
    imported = sorted(name for name in sys.modules if name.partition(".")[0] == "tidelog")
    print(f"<{' '.join(imported)}>")
"""
WAITING = """
def test_waits(tidelog_client, tidelog_queue, tidelog_broker):
    print(f"<{tidelog_broker.data_dir}>", flush=True)
    tidelog_client.queue(tidelog_queue).receive(wait=3600)
"""

Suite = Callable[..., str]


def command(*arguments: str) -> list[str]:
    """Return the command of a suite; an installed tidelog may have the plugin as entry point."""
    plugin = ("-pno:tidelog", "-ptidelog.testing.plugin", "-pno:randomly", "-pno:cacheprovider")
    return [sys.executable, "-m", "pytest", *plugin, "-Werror", *arguments]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": ""}


@pytest.fixture
def run_suite(tmp_path: Path) -> Suite:
    """Write files, run pytest on them, and check its result."""

    def run(*arguments: str, passed: bool = True, **files: str) -> str:
        (tmp_path / "pytest.ini").write_text(
            "[pytest]\nasyncio_default_fixture_loop_scope = function\n"
        )
        for name, text in files.items():
            (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
        done = subprocess.run(
            command(*arguments, str(tmp_path)),
            cwd=tmp_path,
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == (0 if passed else 1), done.stdout + done.stderr
        return done.stdout

    return run


def test_tests_of_any_event_loop_share_a_broker(run_suite: Suite) -> None:
    output = run_suite(conftest=OWN_SETTINGS, test_sync=SYNC, test_trio=TRIO, test_asyncio=ASYNCIO)

    assert "9 passed" in output


def test_each_worker_of_xdist_has_its_own_broker(run_suite: Suite) -> None:
    output = run_suite("-n2", "-rP", test_address=ADDRESS)

    assert "4 passed" in output
    assert len(brokers_in(output)) == 2


def test_each_test_can_have_its_own_broker_and_its_warnings(run_suite: Suite) -> None:
    scope = "-otidelog_broker_scope=function"
    output = run_suite(scope, "-rP", passed=False, test_address=ADDRESS, test_failing=FAILING)

    assert "1 failed, 4 passed" in output
    assert len(brokers_in(output)) == 4
    assert "node_fenced node_id=1 reason=another process of the broker has registered" in output


def test_an_interrupt_ends_a_suite_that_waits_and_leaves_no_files(tmp_path: Path) -> None:
    (tmp_path / "test_waiting.py").write_text(WAITING, encoding="utf-8")
    with subprocess.Popen(
        command("-s", "-pno:asyncio", str(tmp_path)),
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        data_dir = next(line for line in process.stdout if "<" in line).split("<")[1].split(">")[0]
        existed = Path(data_dir).exists()
        process.send_signal(signal.SIGINT)
        output = process.stdout.read()

    assert process.returncode == pytest.ExitCode.INTERRUPTED, output
    assert existed
    assert not Path(data_dir).exists()


def test_a_suite_without_fixtures_imports_nothing_of_tidelog(run_suite: Suite) -> None:
    output = run_suite("-s", test_imports=IMPORTS)

    assert "<tidelog tidelog.testing tidelog.testing.plugin>" in output


def brokers_in(output: str) -> set[str]:
    return {line.split("<")[1] for line in output.splitlines() if line.startswith("<127")}
