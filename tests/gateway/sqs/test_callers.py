"""Tests of callers: the region, account and address of requests."""

from pathlib import Path

import tidelog
from tests.gateway.sqs.callers import open_caller
from tidelog.gateway.sqs.callers import UnsignedCallers
from tidelog.gateway.sqs.http.messages import HttpRequest
from tidelog.gateway.sqs.settings import FrontSettings

_CREDENTIAL = b"AWS4-HMAC-SHA256 Credential=AKID/20260101/%s/sqs/aws4_request, SignedHeaders=host"


def _request(*, host: bytes = b"sqs.example:9324", authorization: bytes = b"") -> HttpRequest:
    headers = {b"host": host, b"authorization": authorization}
    return HttpRequest(b"POST", b"/", headers, b"")


async def test_without_signatures_a_request_names_its_region_and_host(tmp_path: Path) -> None:
    async with open_caller(tmp_path) as known:
        callers = UnsignedCallers(known.client, FrontSettings(), address="127.0.0.1:9324")
        plain = await callers.caller_of(_request())
        assert plain.scope.url_of("orders") == "http://sqs.example:9324/000000000000/orders"
        assert plain.scope.queue_named("orders") == "orders"
        assert plain is await callers.caller_of(_request())

        signed = _request(authorization=_CREDENTIAL % b"eu-west-1")
        abroad = await callers.caller_of(signed)
        assert abroad.scope.queue_named("orders") == "eu-west-1.orders"
        assert abroad.state is plain.state

        strange = await callers.caller_of(_request(authorization=_CREDENTIAL % b"Eu.west"))
        assert strange.scope.region == "us-east-1"


async def test_a_host_that_is_none_gives_the_address_of_the_front(tmp_path: Path) -> None:
    async with (
        tidelog.open_broker(tmp_path) as broker,
        tidelog.connect(broker.address) as client,
    ):
        callers = UnsignedCallers(client, FrontSettings(), address="127.0.0.1:9324")
        for host in (b"", b"a b", b"x/y", b"h\r\nX: y"):
            caller = await callers.caller_of(_request(host=host))
            assert caller.scope.base_url == "http://127.0.0.1:9324"
