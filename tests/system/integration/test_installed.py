"""Tests of the wheel beside modules with our rooms' names; `../spark` has Spark's part."""

import tarfile
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

import tidelog
from tests.paths import ROOT
from tests.system.installed import Installation, build, install_wheel

OWN_MODULES = """
import broker, client, isr, logstore, wire

assert {module.OWNER for module in (broker, client, isr, logstore, wire)} == {"user"}
"""
EMBEDDED = """
import sys

import trio

import tidelog

assert "site-packages" in tidelog.__file__, tidelog.__file__

async def main():
    async with (
        tidelog.open_broker(sys.argv[1]) as broker,
        tidelog.connect(broker.address) as client,
    ):
        await client.admin.create_topic("orders")
        async with client.producer() as producer:
            await producer.send("orders", b"paid")
        async with client.consumer("orders", auto_offset_reset="earliest") as consumer:
            async for record in consumer:
                print(record.value.decode())
                break

trio.run(main)
"""
BLOCKING = """
import subprocess, sys, tidelog.blocking

serve = [sys.argv[1], "serve", "--data-dir", sys.argv[2], "--listen", "127.0.0.1:0"]
with subprocess.Popen([*serve, "--log-format", "json"], stderr=subprocess.PIPE) as process:
    import json
    for line in process.stderr:
        event = json.loads(line)
        if event["event"] == "broker_started":
            break
    with tidelog.blocking.connect(event["address"]) as client:
        client.admin.create_queue("jobs")
        client.queue("jobs").send(b"paint")
        (message,) = client.queue("jobs").receive(wait=10)
        message.delete()
        print(message.value.decode())
    listed = subprocess.run(
        [sys.argv[1], "topic", "list", "--broker", event["address"]],
        capture_output=True, text=True, check=False,
    )
    print(listed.stdout, listed.stderr)
    process.terminate()
"""

SUITE = """
import sys

def test_the_plugin(tidelog_client, tidelog_queue, tidelog_broker):
    queue = tidelog_client.queue(tidelog_queue)
    queue.send(b"paint", delay=3600)
    tidelog_broker.advance(3601)
    assert [message.value for message in queue.receive(wait=0)] == [b"paint"]

def test_pytest_rewrites_no_asserts_of_the_broker():
    loader = sys.modules["tidelog.broker.server"].__spec__.loader
    assert type(loader).__name__ == "SourceFileLoader"
"""


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    return install_wheel(tmp_path_factory.mktemp("installed"))


def test_the_wheel_contains_two_packages(installation: Installation) -> None:
    tops = {name.split("/")[0] for name in _names(installation.wheel)}

    assert {top for top in tops if not top.endswith(".dist-info")} == {
        "pyspark_tidelog",
        "tidelog",
    }


def test_the_source_distribution_makes_the_wheel_of_the_checkout(
    installation: Installation, tmp_path: Path
) -> None:
    with tarfile.open(build("sdist", ROOT, tmp_path / "sdist")) as sdist:
        sdist.extractall(tmp_path / "source", filter="data")
    (source,) = (tmp_path / "source").iterdir()

    wheel = build("wheel", source, tmp_path / "wheel")

    assert _names(wheel) == _names(installation.wheel)


def test_package_metadata_and_command_show_one_version(installation: Installation) -> None:
    assert version("tidelog") == tidelog.__version__
    assert installation.run("-m", "tidelog", "--version") == f"tidelog {tidelog.__version__}\n"


def test_an_embedded_broker_runs_beside_modules_of_the_same_names(
    installation: Installation, tmp_path: Path
) -> None:
    program = installation.write("embedded.py", OWN_MODULES + EMBEDDED)

    assert installation.run(program, str(tmp_path)) == "paid\n"


def test_commands_and_the_blocking_client_run_beside_modules_of_the_same_names(
    installation: Installation, tmp_path: Path
) -> None:
    program = installation.write("blocking.py", OWN_MODULES + BLOCKING)
    command = str(installation.python.parent / "tidelog")

    output = installation.run(program, command, str(tmp_path))

    assert output.splitlines()[0] == "paint"
    assert "jobs" in output


def test_pytest_finds_the_plugin_and_imports_the_broker_as_it_is(
    installation: Installation,
) -> None:
    program = installation.write("test_plugin.py", SUITE)

    output = installation.run("-m", "pytest", "-q", "-pno:asyncio", "-pno:randomly", program)

    assert "2 passed" in output


def _names(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as files:
        return sorted(files.namelist())
