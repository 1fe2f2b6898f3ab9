"""The package: its public names, and nothing loaded before it is used."""

import subprocess
import sys
from pathlib import Path

import pytest

import tidelog
from tidelog import surface
from tidelog.client.client import connect
from tidelog.wire.errors import ERROR_CLASSES, NotANodeError, TidelogError


def run_python(code: str) -> str:
    """Return what code prints in an interpreter of its own."""
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_a_public_name_is_the_one_of_the_package_behind() -> None:
    assert tidelog.connect is connect
    assert tidelog.TidelogError is TidelogError


def test_importing_it_loads_neither_trio_nor_the_client() -> None:
    loaded = run_python(
        "import sys, tidelog; "
        "print([n for n in ('trio', 'tidelog.client.client') if n in sys.modules])"
    )

    assert loaded == "[]"


def test_a_star_import_brings_every_public_name() -> None:
    assert run_python("from tidelog import *; print(connect.__module__)") == "tidelog.client.client"


def test_the_public_names_are_listed() -> None:
    assert {"connect", "open_broker", "Record", "blocking"} <= set(dir(tidelog))


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'conect'"):
        _ = getattr(tidelog, "conect")  # noqa: B009  (a type checker would find it)


def test_the_face_is_looked_at_without_loading_anything() -> None:
    assert (
        run_python(
            "import sys, tidelog; hasattr(tidelog, '__path__x__');print('trio' in sys.modules)"
        )
        == "False"
    )


def test_every_public_name_is_there() -> None:
    assert all(hasattr(surface, name) for name in surface.__all__)


def test_every_error_of_the_tree_is_public() -> None:
    errors = {name for name in dir(surface) if name.endswith("Error") and not name.startswith("_")}

    assert errors <= set(surface.__all__)


async def test_a_program_can_run_a_broker_and_talk_to_it(tmp_path: Path) -> None:
    async with (
        tidelog.open_broker(tmp_path) as broker,
        tidelog.connect(broker.address) as client,
    ):
        await client.admin.create_topic("orders")
        async with client.producer() as producer:
            receipt = await producer.send("orders", b"paid")

    assert (receipt.partition, receipt.offset) == (0, 0)


def test_every_error_of_a_broker_has_a_public_name() -> None:
    of_clients = [each for each in ERROR_CLASSES.values() if each is not NotANodeError]

    assert [each.__name__ for each in of_clients if not hasattr(tidelog, each.__name__)] == []
