"""Tests of callers: the region, account and address of requests."""

from pathlib import Path

import pytest

import tidelog
from tests.gateway.sqs.callers import open_caller
from tidelog.gateway.sqs.callers import UnsignedCallers
from tidelog.gateway.sqs.http.messages import HttpRequest
from tidelog.gateway.sqs.protocol.errors import SqsError
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


@pytest.mark.difference(
    "Requests",
    cloud="Web pages may send requests, which are signed.",
    here="A front with `--no-auth` refuses requests with `Origin` or `Sec-Fetch-Site`, and GET"
    " requests to other hosts than this machine.",
    why="Any web page can have a browser send requests to this machine.",
    switch="leave out `--no-auth`, and sign",
)
async def test_a_front_without_signatures_serves_no_web_page(tmp_path: Path) -> None:
    async with open_caller(tmp_path) as known:
        callers = UnsignedCallers(known.client, FrontSettings(), address="127.0.0.1:9324")
        get = _request(host=b"rebound.example:9324")._replace(method=b"GET")
        pages = [
            _with(b"origin", b"https://evil.example"),
            _with(b"origin", b"null"),
            _with(b"sec-fetch-site", b"cross-site"),
            _with(b"sec-fetch-site", b"same-origin"),
            get,
        ]
        for page in pages:
            with pytest.raises(SqsError, match="Requests of web pages are not served") as raised:
                await callers.caller_of(page)
            assert raised.value.shape.status == 403
        for host in (b"127.0.0.1:9324", b"localhost", b"LOCALHOST:9324", b"[::1]:9324"):
            await callers.caller_of(get._replace(headers={b"host": host}))
        await callers.caller_of(_with(b"sec-fetch-site", b"none"))


def _with(name: bytes, value: bytes) -> HttpRequest:
    request = _request()
    return request._replace(headers={**request.headers, name: value})


async def test_a_host_that_is_none_gives_the_address_of_the_front(tmp_path: Path) -> None:
    async with (
        tidelog.open_broker(tmp_path) as broker,
        tidelog.connect(broker.address) as client,
    ):
        callers = UnsignedCallers(client, FrontSettings(), address="127.0.0.1:9324")
        for host in (b"", b"a b", b"x/y", b"h\r\nX: y"):
            caller = await callers.caller_of(_request(host=host))
            assert caller.scope.base_url == "http://127.0.0.1:9324"
