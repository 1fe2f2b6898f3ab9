"""Load roles for ElasticMQ, through boto3."""

from time import perf_counter
from typing import Any, Final

from bench.peers.libraries import library
from bench.peers.load import (
    Expiries,
    Gate,
    Role,
    Shared,
    delayed_values,
    in_threads,
    make_values,
)
from bench.peers.orders import Order

_boto3 = library("boto3")
_config = library("botocore.config")

_BATCH_MAX: Final = 10
"""Messages of a call, a limit of the API."""
_WAIT_S: Final = 1
_REGION: Final = "elasticmq"
_ANY: Final = "any"
"""Access key: the server checks none."""


def _connect(order: Order) -> Any:  # noqa: ANN401
    client = _boto3.client(
        "sqs",
        endpoint_url=f"http://{order.addresses}",
        region_name=_REGION,
        aws_access_key_id=_ANY,
        aws_secret_access_key=_ANY,
        config=_config.Config(max_pool_connections=order.workers),
    )
    client.list_queues()  # Connects.
    return client


def _url(client: Any, order: Order) -> str:  # noqa: ANN401
    return str(client.get_queue_url(QueueName=order.name)["QueueUrl"])


def _create_queue(order: Order, gate: Gate) -> None:
    client = _connect(order)
    lease = {"VisibilityTimeout": str(order.hidden_s)} if order.hidden_s else {}
    gate.open()
    client.create_queue(QueueName=order.name, Attributes=lease)
    gate.close()


def _delete_queue(order: Order, gate: Gate) -> None:
    client = _connect(order)
    gate.open()
    client.delete_queue(QueueUrl=_url(client, order))
    gate.close()


def _put(client: Any, url: str, values: list[bytes], *, delay_s: int = 0) -> None:  # noqa: ANN401
    """Send messages in as few calls as the API allows."""
    bodies = [value.decode() for value in values]
    if len(bodies) == 1:
        client.send_message(QueueUrl=url, MessageBody=bodies[0], DelaySeconds=delay_s)
        return
    for first in range(0, len(bodies), _BATCH_MAX):
        entries = [
            {"Id": str(number), "MessageBody": body, "DelaySeconds": delay_s}
            for number, body in enumerate(bodies[first : first + _BATCH_MAX])
        ]
        _check(client.send_message_batch(QueueUrl=url, Entries=entries))


def _check(answer: dict[str, Any]) -> None:
    assert not answer.get("Failed"), f"a part of a batch failed: {answer['Failed']}"


def _take(client: Any, url: str, count: int) -> list[dict[str, str]]:  # noqa: ANN401
    """Receive messages, as many as the API allows at most."""
    answer = client.receive_message(
        QueueUrl=url, MaxNumberOfMessages=min(count, _BATCH_MAX), WaitTimeSeconds=_WAIT_S
    )
    found: list[dict[str, str]] = answer.get("Messages", [])
    return found


def _drop(client: Any, url: str, messages: list[dict[str, str]]) -> None:  # noqa: ANN401
    """Delete messages in one call."""
    handles = [message["ReceiptHandle"] for message in messages]
    if len(handles) == 1:
        client.delete_message(QueueUrl=url, ReceiptHandle=handles[0])
    elif handles:
        entries = [
            {"Id": str(number), "ReceiptHandle": handle} for number, handle in enumerate(handles)
        ]
        _check(client.delete_message_batch(QueueUrl=url, Entries=entries))


def _send(order: Order, gate: Gate) -> None:
    values, shared, client = make_values(order), Shared(order), _connect(order)
    url = _url(client, order)

    def send(_: int) -> None:
        while (taken := shared.take()) is not None:
            _put(client, url, values[taken])

    in_threads(send, order.workers, gate)


def _work(order: Order, gate: Gate) -> None:
    shared, client = Shared(order), _connect(order)
    url = _url(client, order)

    def work(_: int) -> None:
        while shared.left:
            messages = _take(client, url, order.batch)
            for message in messages:
                gate.saw(message["Body"].encode())
            _drop(client, url, messages)
            shared.done(len(messages))

    in_threads(work, order.workers, gate, shared=shared)


def _delay(order: Order, gate: Gate) -> None:
    client, left = _connect(order), order.count
    url = _url(client, order)
    gate.open()
    while left:
        values = delayed_values(order, min(order.batch, left), order.hidden_s)
        _put(client, url, values, delay_s=order.hidden_s)
        left -= len(values)
    gate.close()


def _expire(order: Order, gate: Gate) -> None:
    client, expiries, left = _connect(order), Expiries(gate, order.hidden_s), order.count
    url = _url(client, order)
    gate.open()
    while expiries.count < order.count:
        asked_at = perf_counter()
        for message in _take(client, url, min(order.batch, order.count - expiries.count)):
            expiries.took(asked_at, message["Body"].encode())
    while left:
        messages = _take(client, url, order.batch)
        for message in messages:
            expiries.came_again(message["Body"].encode())
        _drop(client, url, messages)
        left -= len(messages)
    gate.close()


ROLES: Final[dict[str, Role]] = {
    "create_queue": _create_queue,
    "delete_queue": _delete_queue,
    "send": _send,
    "work": _work,
    "delay": _delay,
    "expire": _expire,
}
