"""Brokers for programs of asyncio, which the tests of a module share."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import pytest

from tests.tidelog.aio.programs import RUNNERS, Program, Run, Start
from tests.tidelog.brokers import broker_in_a_thread
from tests.tidelog.group_servers import group_server_in_a_thread


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a broker."""
    with broker_in_a_thread(tmp_path_factory.mktemp("broker")) as address:
        yield address


@pytest.fixture(scope="module")
def group_address() -> Iterator[str]:
    """Address of a broker whose consumer groups become stable at once."""
    with group_server_in_a_thread() as address:
        yield address


@pytest.fixture
def start() -> Iterator[Start]:
    """Return what starts programs, as `Program`; they are killed at the end."""
    with ExitStack() as programs:

        def start(code: str, *arguments: str, options: Sequence[str] = ()) -> Program:
            program = Program(code, *arguments, options=options)
            programs.callback(program.kill)
            return program

        yield start


@pytest.fixture(params=sorted(RUNNERS))
def run(request: pytest.FixtureRequest) -> Run:
    """Return `asyncio.run`, and then `uvloop.run`."""
    return RUNNERS[request.param]
