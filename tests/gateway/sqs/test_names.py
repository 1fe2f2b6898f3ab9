"""Names, URLs and ARNs of queues."""

import pytest

from tidelog.gateway.sqs.names import QueueScope
from tidelog.gateway.sqs.protocol.errors import (
    INVALID_ADDRESS,
    MISSING_PARAMETER,
    QUEUE_DOES_NOT_EXIST,
    ErrorShape,
    SqsError,
)
from tidelog.gateway.sqs.settings import DEFAULT_ACCOUNT, DEFAULT_REGION

OTHER = "111122223333"


def scope(account: str = DEFAULT_ACCOUNT, region: str = DEFAULT_REGION) -> QueueScope:
    return QueueScope(account, region, DEFAULT_ACCOUNT, DEFAULT_REGION, "http://127.0.0.1:9324")


@pytest.mark.difference(
    "Requests",
    cloud="Each account and region is separate.",
    here="An account or region other than the default one is a prefix of the names of queues in"
    " one cluster. The region is that of the signature.",
    why="Native programs see the queues of all of them, and grants on prefixes separate users.",
)
@pytest.mark.parametrize(
    ("account", "region", "name"),
    [
        (DEFAULT_ACCOUNT, DEFAULT_REGION, "orders"),
        (DEFAULT_ACCOUNT, "eu-west-1", "eu-west-1.orders"),
        (OTHER, DEFAULT_REGION, "111122223333.orders"),
        (OTHER, "eu-west-1", "111122223333.eu-west-1.orders"),
    ],
)
def test_account_and_region_are_prefixes(account: str, region: str, name: str) -> None:
    assert scope(account, region).queue_named("orders") == name


def test_urls_and_arns_name_the_owner() -> None:
    assert scope().url_of("orders") == "http://127.0.0.1:9324/000000000000/orders"
    assert scope().url_of("orders", OTHER) == f"http://127.0.0.1:9324/{OTHER}/orders"
    assert scope(OTHER).arn_of("orders") == f"arn:aws:sqs:us-east-1:{OTHER}:orders"


@pytest.mark.parametrize(
    ("queue", "place"),
    [
        ("orders", (DEFAULT_ACCOUNT, DEFAULT_REGION, "orders")),
        ("orders.fifo", (DEFAULT_ACCOUNT, DEFAULT_REGION, "orders.fifo")),
        ("eu-west-1.orders.fifo", (DEFAULT_ACCOUNT, "eu-west-1", "orders.fifo")),
        (f"{OTHER}.orders", (OTHER, DEFAULT_REGION, "orders")),
        (f"{OTHER}.eu-west-1.orders", (OTHER, "eu-west-1", "orders")),
        (f"{OTHER}.fifo", (DEFAULT_ACCOUNT, DEFAULT_REGION, f"{OTHER}.fifo")),
        ("a.b.c", None),
        (f"{DEFAULT_REGION}.orders", None),
        (f"{DEFAULT_ACCOUNT}.orders", None),
        ("q" * 81, None),
        (".fifo", None),
    ],
)
def test_a_tidelog_name_has_one_reading(queue: str, place: tuple[str, str, str] | None) -> None:
    found = scope().place_of(queue)
    assert found == place
    if found is not None:
        there = scope(found.account, found.region)
        assert there.queue_named(found.name) == queue
        assert there.queue_of_arn(found.arn) == queue


def test_a_name_is_of_the_account_of_the_request() -> None:
    assert scope(OTHER).queue_at("orders") == f"{OTHER}.orders"


def test_a_prefix_does_not_make_a_queue_of_another_scope() -> None:
    with pytest.raises(SqsError) as caught:
        scope(OTHER).queue_named("fifo")
    assert caught.value.shape is QUEUE_DOES_NOT_EXIST


@pytest.mark.difference(
    "Requests",
    cloud="The URL of a queue names its region, and only the endpoint in it takes requests.",
    here="Account and name at its end count. The region is that of the signature, so two regions"
    " have the same URLs.",
    why="Balancers, containers and proxies change the host.",
)
@pytest.mark.parametrize(
    "url",
    [
        f"http://127.0.0.1:9324/{OTHER}/orders",
        f"https://sqs.eu-west-1.amazonaws.com/{OTHER}/orders/",
        f"https://proxy.example/sqs/{OTHER}/orders",
        f"/{OTHER}/orders",
    ],
)
def test_account_and_name_of_a_url_count(url: str) -> None:
    assert scope().queue_at(url) == f"{OTHER}.orders"


@pytest.mark.parametrize(
    ("url", "shape"),
    [
        (None, MISSING_PARAMETER),
        ("", MISSING_PARAMETER),
        ("a.b", INVALID_ADDRESS),
        ("http://127.0.0.1:9324/", INVALID_ADDRESS),
        ("http://127.0.0.1:9324/12345/orders", INVALID_ADDRESS),
        (f"http://127.0.0.1:9324/{OTHER}/a.b", QUEUE_DOES_NOT_EXIST),
        (f"http://127.0.0.1:9324/{OTHER}/{'q' * 81}", QUEUE_DOES_NOT_EXIST),
    ],
)
def test_other_urls_are_refused(url: str | None, shape: ErrorShape) -> None:
    with pytest.raises(SqsError) as caught:
        scope().queue_at(url)
    assert caught.value.shape is shape


@pytest.mark.parametrize(
    "arn", ["", "dummy", "arn:aws:sns:us-east-1:111122223333:q", "arn:aws:sqs:us-east-1:1:q"]
)
def test_other_arns_name_no_queue(arn: str) -> None:
    assert scope().queue_of_arn(arn) is None
