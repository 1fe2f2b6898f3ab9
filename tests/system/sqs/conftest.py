"""Fixtures: one broker and one front for all tests here, and clients of both protocols.

`TIDELOG_SQS_ENDPOINT` names another server, such as ElasticMQ, to see how it differs.
"""

import itertools
import os
from collections.abc import Callable, Iterator

import pytest

from tests.system.sqs.clients import SqsClient, json_client, query_client
from tests.system.sqs.fronts import running_broker, running_front

_numbers = itertools.count()
MakeQueue = Callable[..., str]


@pytest.fixture(scope="session")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the URL of a front that checks no signatures."""
    other = os.environ.get("TIDELOG_SQS_ENDPOINT")
    if other:
        yield other
        return
    with (
        running_broker(tmp_path_factory.mktemp("sqs-broker")) as broker,
        running_front(broker, "--no-auth") as url,
    ):
        yield url


@pytest.fixture(scope="session", params=["json", "query"])
def sqs(
    request: pytest.FixtureRequest, endpoint: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SqsClient]:
    """Return a client of each protocol."""
    is_json = request.param == "json"
    client = (
        json_client(endpoint)
        if is_json
        else query_client(endpoint, tmp_path_factory.mktemp("models"))
    )
    yield client
    client.close()


@pytest.fixture(scope="session")
def sqs_json(endpoint: str) -> Iterator[SqsClient]:
    """Return a client of boto3, for tests that wait: once is enough."""
    client = json_client(endpoint)
    yield client
    client.close()


def new_name(suffix: str = "") -> str:
    """Return a name that no queue has."""
    return f"q-{os.getpid()}-{next(_numbers)}{suffix}"


@pytest.fixture
def make_queue(request: pytest.FixtureRequest) -> MakeQueue:
    """Return a function that creates a queue with attributes, and returns its URL."""
    name = "sqs" if "sqs" in request.fixturenames else "sqs_json"
    client = request.getfixturevalue(name)

    def make(is_fifo: bool = False, **attributes: str) -> str:
        if is_fifo:
            attributes["FifoQueue"] = "true"
        name = new_name(".fifo" if is_fifo else "")
        return str(client.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"])

    return make


@pytest.fixture
def queue(make_queue: MakeQueue) -> str:
    """Return the URL of a standard queue."""
    return make_queue()


@pytest.fixture
def fifo(make_queue: MakeQueue) -> str:
    """Return the URL of a FIFO queue."""
    return make_queue(is_fifo=True)
