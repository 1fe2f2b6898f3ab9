"""Names, URLs and ARNs of queues."""

import pytest

from tidelog.gateway.sqs.names import QueueScope
from tidelog.gateway.sqs.settings import DEFAULT_ACCOUNT, DEFAULT_REGION

OTHER = "111122223333"


def scope(account: str = DEFAULT_ACCOUNT, region: str = DEFAULT_REGION) -> QueueScope:
    return QueueScope(account, region, DEFAULT_ACCOUNT, DEFAULT_REGION, "http://127.0.0.1:9324")


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
