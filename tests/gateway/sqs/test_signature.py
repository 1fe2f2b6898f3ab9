"""Signatures: those of botocore and of the vendor's test suite are proved, all others refused."""

import hmac
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gateway.sqs.signing import KEY_ID, SECRET, presigned, signed, signed_at, signing_key
from tidelog.gateway.sqs.http.messages import HttpRequest
from tidelog.gateway.sqs.protocol.errors import SqsError
from tidelog.gateway.sqs.signature import KeyedHash, SignatureClaim, check, claim_of

URL: Final = "http://127.0.0.1:9324/"
JSON_HEADERS: Final = {
    "Content-Type": "application/x-amz-json-1.0",
    "X-Amz-Target": "AmazonSQS.SendMessage",
}


def _prove(request: HttpRequest, *, now_s: float | None = None) -> SignatureClaim:
    claim = claim_of(request, now_s=signed_at(request) if now_s is None else now_s)
    check(claim, KeyedHash(signing_key(SECRET, claim.date, claim.region)))
    return claim


def _refusal(request: HttpRequest, *, now_s: float | None = None) -> tuple[str, str]:
    with pytest.raises(SqsError) as raised:
        _prove(request, now_s=now_s)
    return raised.value.shape.query_code, raised.value.message


# aws-sig-v4-test-suite: method, target, further headers, body, signed headers, signature.
VECTORS: Final = [
    pytest.param(
        "GET", "/", {}, b"", "host;x-amz-date",
        "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
        id="get-vanilla",
    ),
    pytest.param(
        "GET", "/?Param2=value2&Param1=value1", {}, b"", "host;x-amz-date",
        "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
        id="get-vanilla-query-order-key-case",
    ),
    pytest.param(
        "GET", "/?%E1%88%B4=bar", {}, b"", "host;x-amz-date",
        "2cdec8eed098649ff3a119c94853b13c643bcf08f8b0a1d91e12c9027818dd04",
        id="get-vanilla-utf8-query",
    ),
    pytest.param(
        "GET", "/", {b"my-header1": b" value1", b"my-header2": b' "a   b   c"'}, b"",
        "host;my-header1;my-header2;x-amz-date",
        "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736",
        id="get-header-value-trim",
    ),
    pytest.param(
        "GET", "/example/..", {}, b"", "host;x-amz-date",
        "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
        id="get-relative",
    ),
    pytest.param(
        "GET", "//example//", {}, b"", "host;x-amz-date",
        "9a624bd73a37c9a373b5312afbebe7a714a789de108f0bdfe846570885f57e84",
        id="get-slashes",
    ),
    pytest.param(
        "POST", "/", {b"content-type": b"application/x-www-form-urlencoded"}, b"Param1=value1",
        "content-type;host;x-amz-date",
        "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
        id="post-x-www-form-urlencoded",
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("method", "target", "headers", "body", "signed_headers", "signature"), VECTORS
)
def test_vectors_of_the_vendor_are_proved(
    method: str,
    target: str,
    headers: dict[bytes, bytes],
    body: bytes,
    signed_headers: str,
    signature: str,
) -> None:
    authorization = (
        f"AWS4-HMAC-SHA256 Credential={KEY_ID}/20150830/us-east-1/service/aws4_request,"
        f" SignedHeaders={signed_headers}, Signature={signature}"
    )
    request = HttpRequest(
        method.encode(),
        target.encode(),
        {
            b"host": b"example.amazonaws.com",
            b"x-amz-date": b"20150830T123600Z",
            b"authorization": authorization.encode(),
            **headers,
        },
        body,
    )
    claim = claim_of(request, now_s=1440938160, service="service")
    assert (claim.key_id, claim.date, claim.region) == (KEY_ID, "20150830", "us-east-1")
    check(claim, KeyedHash(signing_key(SECRET, "20150830", "us-east-1", service="service")))


@pytest.mark.parametrize("path", ["", "000000000000/orders.fifo", "a%20b/../c//d?x=1&B=%2F+"])
def test_a_header_of_botocore_is_proved(path: str) -> None:
    request = signed(URL + path.replace("+", "%20"), b'{"a": 1}', JSON_HEADERS, region="eu-west-1")
    claim = _prove(request)
    assert (claim.key_id, claim.region) == (KEY_ID, "eu-west-1")


def test_a_presigned_url_of_botocore_is_proved() -> None:
    request = presigned(URL + "0/q?Action=SendMessage&MessageBody=gr%C3%BC%C3%9Fe%20%2B%20%2F")
    assert _prove(request).key_id == KEY_ID


@pytest.mark.parametrize(
    "change",
    [
        {"body": b'{"a": 2}'},
        {"target": b"/other"},
        {"target": b"/?a=b"},
        {"method": b"GET"},
    ],
)
def test_another_request_than_was_signed_is_refused(change: dict[str, bytes]) -> None:
    request = signed(URL, b'{"a": 1}', JSON_HEADERS)
    code, text = _refusal(request._replace(**change))  # type: ignore[arg-type]
    assert code == "SignatureDoesNotMatch"
    assert text.startswith("The request signature we calculated does not match")


def test_a_signed_header_that_changed_is_refused() -> None:
    request = signed(URL, b"{}", JSON_HEADERS)
    headers = {**request.headers, b"x-amz-target": b"AmazonSQS.DeleteQueue"}
    assert _refusal(request._replace(headers=headers))[0] == "SignatureDoesNotMatch"


def test_a_target_that_is_not_signed_is_refused() -> None:
    request = signed(URL, b"{}")
    headers = {**request.headers, b"x-amz-target": b"AmazonSQS.DeleteQueue"}
    code, text = _refusal(request._replace(headers=headers))
    assert code == "SignatureDoesNotMatch"
    assert text == "'X-Amz-Target' must be a 'SignedHeader' in the AWS Authorization."


@pytest.mark.parametrize("skew_s", [-900, 900])
def test_a_clock_within_fifteen_minutes_is_accepted(skew_s: int) -> None:
    request = signed(URL, b"{}", JSON_HEADERS)
    _prove(request, now_s=signed_at(request) + skew_s)


def test_a_clock_beyond_fifteen_minutes_is_refused() -> None:
    request = signed(URL, b"{}", JSON_HEADERS)
    code, text = _refusal(request, now_s=signed_at(request) + 901)
    assert code == "SignatureDoesNotMatch"
    assert text.startswith("Signature expired: ")
    assert text.endswith(" - 15 min.)")
    code, text = _refusal(request, now_s=signed_at(request) - 901)
    assert code == "SignatureDoesNotMatch"
    assert text.startswith("Signature not yet current: ")
    assert text.endswith(" + 15 min.)")


def test_a_presigned_url_expires() -> None:
    request = presigned(URL + "0/q?Action=ReceiveMessage", expires_s=60)
    _prove(request, now_s=signed_at(request) + 60)
    assert _refusal(request, now_s=signed_at(request) + 61) == (
        "RequestExpired",
        "Request has expired.",
    )


@pytest.mark.parametrize(
    "name",
    ["X-Amz-Credential", "X-Amz-Date", "X-Amz-Expires", "X-Amz-SignedHeaders", "X-Amz-Signature"],
)
def test_a_presigned_url_without_a_parameter_is_refused(name: str) -> None:
    request = presigned(URL + "0/q?Action=ReceiveMessage")
    renamed = request.target.replace(f"&{name}=".encode(), f"&Old{name}=".encode())
    assert renamed != request.target
    code, text = _refusal(request._replace(target=renamed), now_s=signed_at(request))
    assert code == "IncompleteSignature"
    assert f"must include '{name}'" in text


def test_a_presigned_url_that_changed_is_refused() -> None:
    request = presigned(URL + "0/q?Action=ReceiveMessage")
    changed = request.target.replace(b"ReceiveMessage", b"PurgeQueue")
    assert _refusal(request._replace(target=changed))[0] == "SignatureDoesNotMatch"


def test_a_request_without_signature_is_refused() -> None:
    request = HttpRequest(b"POST", b"/", {b"host": b"h"}, b"{}")
    expected = ("MissingAuthenticationToken", "Request is missing Authentication Token")
    assert _refusal(request) == expected


@pytest.mark.parametrize(
    ("authorization", "text"),
    [
        ("AWS4-HMAC-SHA256 Signature=1, SignedHeaders=host", "requires 'Credential' parameter."),
        ("AWS4-HMAC-SHA256 Credential=a, SignedHeaders=host", "requires 'Signature' parameter."),
        ("AWS4-HMAC-SHA256 Credential=a, Signature=1", "requires 'SignedHeaders' parameter."),
        (
            "AWS4-HMAC-SHA256 Credential=a, SignedHeaders=host, Signature=1",
            "requires existence of either a 'X-Amz-Date' or a 'Date' header.",
        ),
        ("AWS3 Credential=a", "Unsupported AWS 'algorithm': 'AWS3'."),
    ],
)
def test_an_incomplete_signature_is_refused(authorization: str, text: str) -> None:
    headers = {b"host": b"h", b"authorization": authorization.encode()}
    code, message = _refusal(HttpRequest(b"POST", b"/", headers, b"{}"))
    assert code == "IncompleteSignature"
    assert text in message


@pytest.mark.parametrize(
    ("credential", "code", "text"),
    [
        ("a/20150830/r/sqs", "IncompleteSignature", "Credential must have exactly 5"),
        ("a/20150830/r/sns/aws4_request", "SignatureDoesNotMatch", "correct service: 'sqs'."),
        ("a/20150830/r/sqs/aws5", "SignatureDoesNotMatch", "valid terminator: 'aws4_request'"),
        ("a/20150831/r/sqs/aws4_request", "SignatureDoesNotMatch", "'20150831' != '20150830'"),
        ("a/20150830/R!/sqs/aws4_request", "SignatureDoesNotMatch", "valid region, not 'R!'"),
    ],
)
def test_a_wrong_scope_is_refused(credential: str, code: str, text: str) -> None:
    authorization = f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders=host, Signature=1"
    headers = {
        b"host": b"h",
        b"x-amz-date": b"20150830T123600Z",
        b"authorization": authorization.encode(),
    }
    found = _refusal(HttpRequest(b"POST", b"/", headers, b"{}"), now_s=1440938160)
    assert found[0] == code
    assert text in found[1]


@pytest.mark.difference(
    "Requests",
    cloud="Temporary credentials with a session token are accepted.",
    here="They fail with `InvalidClientTokenId`.",
    why="Access keys of tidelog are those of users, and end when they are removed.",
)
def test_temporary_credentials_are_refused() -> None:
    code, text = _refusal(signed(URL, b"{}", JSON_HEADERS, token="session"))
    assert code == "InvalidClientTokenId"
    assert text == "The security token included in the request is invalid."


def test_the_date_header_of_http_serves() -> None:
    headers = {
        b"host": b"h",
        b"date": b"Sun, 30 Aug 2015 12:36:00 GMT",
        b"authorization": b"AWS4-HMAC-SHA256 Credential=a/20150830/r/sqs/aws4_request,"
        b" SignedHeaders=date;host, Signature=1",
    }
    claim = claim_of(HttpRequest(b"POST", b"/", headers, b"{}"), now_s=1440938160)
    assert claim.string_to_sign.startswith(b"AWS4-HMAC-SHA256\n20150830T123600Z\n")


@given(
    target=st.binary(max_size=80).map(lambda tail: b"/?X-Amz-Signature=1&" + tail),
    authorization=st.none() | st.binary(max_size=80).map(lambda tail: b"AWS4-HMAC-SHA256 " + tail),
    date=st.none() | st.binary(max_size=20) | st.just(b"20151330T123600Z"),
)
def test_anything_else_is_refused(
    target: bytes, authorization: bytes | None, date: bytes | None
) -> None:
    headers = {b"host": b"h"}
    if authorization is not None:
        headers[b"authorization"] = authorization
    if date is not None:
        headers[b"date"] = date
    with pytest.raises(SqsError):
        _prove(HttpRequest(b"GET", target, headers, b""), now_s=1440938160)


def test_a_header_that_is_not_written_as_sdks_do_is_read_alike() -> None:
    request = signed(URL, b"{}", JSON_HEADERS)
    header = request.headers[b"authorization"].decode()
    algorithm, _, fields = header.partition(" ")
    in_other_order = f"{algorithm} {', '.join(reversed(fields.split(', ')))}"
    for written in (header.replace(", ", ","), header.replace(", ", " ,  "), in_other_order):
        headers = {**request.headers, b"authorization": written.encode()}
        assert _prove(request._replace(headers=headers)) == _prove(request)


@given(key=st.binary(min_size=1, max_size=64), text=st.binary(max_size=300))
def test_a_keyed_hash_is_that_of_the_standard_library(key: bytes, text: bytes) -> None:
    assert KeyedHash(key).hexdigest(text) == hmac.digest(key, text, "sha256").hex()
