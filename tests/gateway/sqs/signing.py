"""Requests that botocore signs, as the front reads them."""

import hmac
import re
from datetime import UTC, datetime
from urllib.parse import urlsplit

from botocore.auth import SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tidelog.gateway.sqs.http.messages import HttpRequest

KEY_ID = "AKIDEXAMPLE"
SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"  # of the vendor's examples


def signing_key(secret: str, date: str, region: str, *, service: str = "sqs") -> bytes:
    """Return the signing key, by the steps of the IAM User Guide."""
    key = f"AWS4{secret}".encode()
    for part in (date, region, service, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key


def signed(
    url: str,
    body: bytes = b"",
    headers: dict[str, str] | None = None,
    *,
    region: str = "us-east-1",
    token: str | None = None,
    key_id: str = KEY_ID,
    secret: str = SECRET,
) -> HttpRequest:
    """Return a POST request that botocore signs now, in its header `Authorization`."""
    request = AWSRequest("POST", url, headers=headers or {}, data=body)
    SigV4Auth(Credentials(key_id, secret, token), "sqs", region).add_auth(request)
    return _as_received(request)


def presigned(
    url: str, *, expires_s: int = 60, key_id: str = KEY_ID, secret: str = SECRET
) -> HttpRequest:
    """Return a GET request that botocore signs now, in its query."""
    request = AWSRequest("GET", url)
    SigV4QueryAuth(Credentials(key_id, secret), "sqs", "us-east-1", expires_s).add_auth(request)
    return _as_received(request)


def signed_at(request: HttpRequest) -> float:
    """Return the Unix time of the signature of a request, in seconds; 0 without one."""
    text = b" ".join((request.target, request.headers.get(b"x-amz-date", b""))).decode()
    found = re.search(r"\d{8}T\d{6}Z", text)
    if found is None:
        return 0
    return datetime.strptime(found[0], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()


def _as_received(request: AWSRequest) -> HttpRequest:
    prepared = request.prepare()
    parts = urlsplit(prepared.url)
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    headers = {name.lower().encode(): _bytes(value) for name, value in prepared.headers.items()}
    headers.setdefault(b"host", parts.netloc.encode())
    body = prepared.body or b""
    return HttpRequest(prepared.method.encode(), target.encode(), headers, _bytes(body))


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value
