"""Signatures of requests: AWS Signature Version 4, in the header `Authorization` or in the query.

Pure: the caller gives the clock. Source: "AWS Signature Version 4 for API requests" of the IAM User
Guide; texts of errors are those of "Troubleshoot Signature Version 4 signing".
"""

import hmac
import re
from calendar import timegm
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from hashlib import sha256
from typing import Final, NamedTuple, final
from urllib.parse import quote, unquote_to_bytes

from tidelog.gateway.sqs.http.messages import HttpRequest
from tidelog.gateway.sqs.protocol.errors import (
    INCOMPLETE_SIGNATURE,
    INVALID_CLIENT_TOKEN_ID,
    INVALID_SIGNATURE,
    MISSING_AUTHENTICATION_TOKEN,
    REQUEST_EXPIRED,
    SqsError,
)

ALGORITHM: Final = "AWS4-HMAC-SHA256"
SERVICE_NAME: Final = "sqs"
_TERM: Final = "aws4_request"
CLOCK_WINDOW_S: Final = 15 * 60
"""Seconds that the clock of a client may differ from that of the front."""
_EXPIRES_MAX_S: Final = 7 * 24 * 3600
"""Seconds that a presigned URL is valid, at most."""
_PRESIGNED: Final = (
    *("X-Amz-Credential", "X-Amz-Date", "X-Amz-Expires", "X-Amz-SignedHeaders", "X-Amz-Signature"),
)
_STAMP: Final = re.compile(r"([0-9]{4})([0-9]{2})([0-9]{2})T([0-9]{2})([0-9]{2})([0-9]{2})Z")
_FIELD: Final = re.compile(r"(\w+)=([^,]*)")
_REGION: Final = re.compile(r"[a-z][a-z0-9-]{0,31}")
"""Regions are prefixes of names, as accounts are: a region of digits could be taken for one."""
_SPACES: Final = re.compile(rb"\s+")
_REGULAR: Final = re.compile(
    rb"AWS4-HMAC-SHA256 Credential=([^/,\s]+)/([0-9]{8})/([a-z][a-z0-9-]{0,31})/([a-z]+)"
    rb"/aws4_request, ?SignedHeaders=([a-z0-9;-]+), ?Signature="
)
"""Header `Authorization` as SDKs write it, without the signature."""
_REGULAR_MAX: Final = 512
"""Length of such headers that are remembered, without the signature, in bytes."""
_SIGNATURE_DIGITS: Final = 64


class SignatureClaim(NamedTuple):
    """What a signed request claims; `check` proves it with the signing key."""

    key_id: str
    """Access key id."""
    date: str
    """Day of the signing key, such as `20150830`."""
    region: str
    string_to_sign: bytes
    signature: str
    """Hexadecimal digits."""


@final
class KeyedHash:
    """HMAC-SHA256 by one key, at less than half the cost of `hmac.digest`."""

    __slots__ = ("_inner", "_outer")

    def __init__(self, key: bytes) -> None:
        """Hash by `key`, of at most 64 bytes."""
        padded = key.ljust(64, b"\0")
        self._inner = sha256(bytes(each ^ 0x36 for each in padded))
        self._outer = sha256(bytes(each ^ 0x5C for each in padded))

    def hexdigest(self, text: bytes) -> str:
        """Return the hash of a text in hexadecimal digits."""
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(text)
        outer.update(inner.digest())
        return outer.hexdigest()


class _Regular(NamedTuple):
    """What the header `Authorization` says but for the signature: for a day it is the same."""

    key_id: str
    date: str
    region: str
    service: str
    signed_headers: bytes
    names: tuple[tuple[bytes, bytes], ...]
    """The signed headers, each with the begin of its canonical line."""
    signs_target: bool


class _Parts(NamedTuple):
    """Where a signature is written, in either form."""

    credential: str
    signed_headers: str
    signature: str
    stamp: str
    """Time of the signature, such as `20150830T123600Z`."""
    expires_s: int | None
    """Seconds that a presigned URL is valid; `None` for a signature in the header."""
    query: str
    """Canonical query string."""


def claim_of(request: HttpRequest, *, now_s: float, service: str = SERVICE_NAME) -> SignatureClaim:
    """Return what a request claims, after all checks that need no key.

    Args:
        request: A request.
        now_s: Unix time in seconds.
        service: Service that the signature is for.

    Raises:
        SqsError: The request is not signed, its signature is not complete, or it is too old.

    """
    authorization = request.headers.get(b"authorization")
    if authorization is not None:
        claim = _regular_claim(request, authorization, now_s=now_s, service=service)
        if claim is not None:
            return claim
    path, _, query = request.target.partition(b"?")
    if authorization is not None:
        parts = _header_parts(request, authorization.decode("latin-1"), query)
    elif b"X-Amz-Signature=" in query:
        parts = _query_parts(query)
    else:
        raise SqsError(MISSING_AUTHENTICATION_TOKEN, "Request is missing Authentication Token")
    key_id, date, region = _scope(parts, service)
    _check_time(parts, now_s)
    canonical = b"\n".join(
        (
            request.method,
            _canonical_path(path),
            parts.query.encode(),
            *_canonical_headers(request, parts.signed_headers),
            parts.signed_headers.encode(),
            sha256(request.body).hexdigest().encode(),
        )
    )
    text = (
        f"{ALGORITHM}\n{parts.stamp}\n{date}/{region}/{service}/{_TERM}\n"
        f"{sha256(canonical).hexdigest()}"
    )
    return SignatureClaim(key_id, date, region, text.encode(), parts.signature)


def check(claim: SignatureClaim, keyed: KeyedHash) -> None:
    """Check the signature of a claim.

    Args:
        claim: What the request claims.
        keyed: Hash by the key that the secret of `key_id` gives for its date, its region and `sqs`.

    Raises:
        SqsError: Another key, or another request, was signed.

    """
    expected = keyed.hexdigest(claim.string_to_sign)
    if not hmac.compare_digest(expected.encode(), claim.signature.encode()):
        raise wrong_signature()


def wrong_signature() -> SqsError:
    """Return the error of a request whose signature is not that of its access key."""
    return SqsError(
        INVALID_SIGNATURE,
        "The request signature we calculated does not match the signature you provided."
        " Check your AWS Secret Access Key and signing method."
        " Consult the service documentation for details.",
    )


def unknown_key() -> SqsError:
    """Return the error of a request whose access key does not exist or is disabled."""
    text = "The security token included in the request is invalid."
    return SqsError(INVALID_CLIENT_TOKEN_ID, text)


def _regular_claim(
    request: HttpRequest, authorization: bytes, *, now_s: float, service: str
) -> SignatureClaim | None:
    """Return the claim of a request that is signed as SDKs do it, at half the cost of the long way.

    `None` for all others, and for those that fail a check: the long way finds the error.
    """
    headers, target = request.headers, request.target
    end = len(authorization) - _SIGNATURE_DIGITS
    found = _regular(authorization[:end]) if 0 < end <= _REGULAR_MAX else None
    stamped = headers.get(b"x-amz-date")
    if (
        found is None
        or stamped is None
        or found.service != service
        or b"x-amz-security-token" in headers
        or not (found.signs_target or b"x-amz-target" not in headers)
        or b"?" in target
    ):
        return None
    stamp = stamped.decode("latin-1")
    signed_s = _seconds(stamp)
    if (
        signed_s is None
        or not now_s - CLOCK_WINDOW_S <= signed_s <= now_s + CLOCK_WINDOW_S
        or stamp[:8] != found.date
    ):
        return None
    lines = b"\n".join([begin + headers.get(name, b"").strip() for name, begin in found.names])
    if b"  " in lines:
        return None
    canonical = b"%b\n%b\n\n%b\n\n%b\n%b" % (
        request.method,
        _canonical_path(target),
        lines,
        found.signed_headers,
        sha256(request.body).hexdigest().encode(),
    )
    text = (
        f"{ALGORITHM}\n{stamp}\n{found.date}/{found.region}/{service}/{_TERM}\n"
        f"{sha256(canonical).hexdigest()}"
    )
    signature = authorization[end:].decode("latin-1")
    return SignatureClaim(found.key_id, found.date, found.region, text.encode(), signature)


@lru_cache(maxsize=1024)
def _regular(head: bytes) -> _Regular | None:
    """Read the header `Authorization`, which ends before the signature."""
    found = _REGULAR.fullmatch(head)
    if found is None:
        return None
    key_id, date, region, service = (part.decode("latin-1") for part in found.groups()[:4])
    names = found[5].split(b";")
    if b"host" not in names:
        return None
    lines = tuple((name, name + b":") for name in names)
    return _Regular(key_id, date, region, service, found[5], lines, b"x-amz-target" in names)


def _header_parts(request: HttpRequest, authorization: str, query: bytes) -> _Parts:
    """Read the header `Authorization`."""
    algorithm, _, rest = authorization.partition(" ")
    if algorithm != ALGORITHM:
        text = f"Unsupported AWS 'algorithm': '{algorithm}'."
        raise SqsError(INCOMPLETE_SIGNATURE, text)
    fields = dict(_FIELD.findall(rest))
    stamp = _stamp_of(request)
    missing = [
        f"Authorization header requires '{name}' parameter."
        for name in ("Credential", "Signature", "SignedHeaders")
        if not fields.get(name, "").strip()
    ]
    if stamp is None:
        missing.append(
            "Authorization header requires existence of either a 'X-Amz-Date' or a 'Date' header."
        )
    if missing or stamp is None:
        text = f"{' '.join(missing)} Authorization={authorization}"
        raise SqsError(INCOMPLETE_SIGNATURE, text)
    if b"x-amz-security-token" in request.headers:
        raise unknown_key()
    return _Parts(
        fields["Credential"].strip(),
        fields["SignedHeaders"].strip(),
        fields["Signature"].strip(),
        stamp,
        None,
        _canonical_query(_pairs(query)) if query else "",
    )


def _query_parts(query: bytes) -> _Parts:
    """Read the parameters of a presigned URL."""
    pairs = _pairs(query)
    given = dict(pairs)
    if given.get("X-Amz-Algorithm") != ALGORITHM:
        text = f"Unsupported AWS 'algorithm': '{given.get('X-Amz-Algorithm', '')}'."
        raise SqsError(INCOMPLETE_SIGNATURE, text)
    missing = [
        f"AWS query-string parameters must include '{name}'."
        for name in _PRESIGNED
        if not given.get(name)
    ]
    expires = given.get("X-Amz-Expires", "")
    if not missing and not (re.fullmatch(r"[0-9]{1,6}", expires) and _lasts(int(expires))):
        missing.append(f"X-Amz-Expires must be between 1 and {_EXPIRES_MAX_S} seconds.")
    if missing:
        raise SqsError(INCOMPLETE_SIGNATURE, " ".join(missing))
    if "X-Amz-Security-Token" in given:
        raise unknown_key()
    return _Parts(
        given["X-Amz-Credential"],
        given["X-Amz-SignedHeaders"],
        given["X-Amz-Signature"],
        given["X-Amz-Date"],
        int(expires),
        _canonical_query([pair for pair in pairs if pair[0] != "X-Amz-Signature"]),
    )


def _lasts(seconds: int) -> bool:
    return 1 <= seconds <= _EXPIRES_MAX_S


def _scope(parts: _Parts, expected: str) -> tuple[str, str, str]:
    """Return access key id, date and region of a credential."""
    elements = parts.credential.split("/")
    if len(elements) != 5:  # noqa: PLR2004
        text = (
            "Credential must have exactly 5 slash-delimited elements, e.g."
            f" keyid/date/region/service/term, got '{parts.credential}'"
        )
        raise SqsError(INCOMPLETE_SIGNATURE, text)
    key_id, date, region, service, term = elements
    wrong: list[str] = []
    if not _REGION.fullmatch(region):
        wrong.append(f"Credential should be scoped to a valid region, not '{region}'.")
    if service != expected:
        wrong.append(f"Credential should be scoped to correct service: '{expected}'.")
    if term != _TERM:
        wrong.append(
            f"Credential should be scoped with a valid terminator: '{_TERM}', not '{term}'."
        )
    if date != parts.stamp[:8]:
        wrong.append(
            "Date in Credential scope does not match YYYYMMDD from ISO-8601 version of date from"
            f" HTTP: '{date}' != '{parts.stamp[:8]}', from '{parts.stamp}'."
        )
    if wrong:
        raise SqsError(INVALID_SIGNATURE, " ".join(wrong))
    return key_id, date, region


def _check_time(parts: _Parts, now_s: float) -> None:
    """Refuse a signature of another time."""
    signed_s = _seconds(parts.stamp)
    if signed_s is None:
        text = (
            "Date must be in ISO-8601 'basic format'. Got"
            f" '{parts.stamp}'. See http://en.wikipedia.org/wiki/ISO_8601"
        )
        raise SqsError(INCOMPLETE_SIGNATURE, text)
    stamp = parts.stamp
    if signed_s > now_s + CLOCK_WINDOW_S:
        text = (
            f"Signature not yet current: {stamp} is still later than"
            f" {_written(now_s + CLOCK_WINDOW_S)} ({_written(now_s)} + 15 min.)"
        )
        raise SqsError(INVALID_SIGNATURE, text)
    if parts.expires_s is not None:
        if now_s > signed_s + parts.expires_s:
            raise SqsError(REQUEST_EXPIRED, "Request has expired.")
    elif signed_s < now_s - CLOCK_WINDOW_S:
        text = (
            f"Signature expired: {stamp} is now earlier than"
            f" {_written(now_s - CLOCK_WINDOW_S)} ({_written(now_s)} - 15 min.)"
        )
        raise SqsError(INVALID_SIGNATURE, text)


def _stamp_of(request: HttpRequest) -> str | None:
    """Return the time of a request in the form of a stamp, or what `X-Amz-Date` has instead."""
    stamp = request.headers.get(b"x-amz-date")
    if stamp is not None:
        return stamp.decode("latin-1").strip()
    date = request.headers.get(b"date")
    if date is None:
        return None
    text = date.decode("latin-1").strip()
    if _STAMP.fullmatch(text):
        return text
    try:
        return _written(parsedate_to_datetime(text).timestamp())
    except (ValueError, OverflowError):
        return text


@lru_cache(maxsize=64)
def _seconds(stamp: str) -> int | None:
    """Return the Unix time of a stamp, in seconds, or `None` for anything else."""
    found = _STAMP.fullmatch(stamp)
    try:
        return None if found is None else timegm(tuple(map(int, found.groups())))
    except ValueError:  # a month 13
        return None


def _written(seconds: float) -> str:
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y%m%dT%H%M%SZ")


def _canonical_path(path: bytes) -> bytes:
    """Return a path without dot segments, with each byte outside the unreserved ones encoded.

    The path is encoded once more than in the request: only S3 does without.
    """
    if path in {b"/", b""}:
        return b"/"
    segments: list[bytes] = []
    for segment in path.split(b"/"):
        if segment == b"..":
            del segments[-1:]
        elif segment not in {b"", b"."}:
            segments.append(segment)
    end = "/" if path.endswith(b"/") and segments else ""
    return f"/{quote(b'/'.join(segments), safe='/-_.~')}{end}".encode()


def _pairs(query: bytes) -> list[tuple[str, str]]:
    """Return names and values of a query string: characters stand for their bytes."""
    pairs: list[tuple[str, str]] = []
    for part in query.split(b"&"):
        if part:
            name, _, value = part.partition(b"=")
            pairs.append(
                (
                    unquote_to_bytes(name).decode("latin-1"),
                    unquote_to_bytes(value).decode("latin-1"),
                )
            )
    return pairs


def _canonical_query(pairs: list[tuple[str, str]]) -> str:
    """Return names and values encoded, in their order."""
    encoded = sorted(
        (
            quote(name, safe="-_.~", encoding="latin-1"),
            quote(value, safe="-_.~", encoding="latin-1"),
        )
        for name, value in pairs
    )
    return "&".join(f"{name}={value}" for name, value in encoded)


def _canonical_headers(request: HttpRequest, signed: str) -> list[bytes]:
    """Return the lines of the signed headers, and the empty line that ends them."""
    names = signed.lower().encode("latin-1").split(b";")
    if b"host" not in names:
        text = "'Host' or ':authority' must be a 'SignedHeader' in the AWS Authorization."
        raise SqsError(INVALID_SIGNATURE, text)
    if b"x-amz-target" in request.headers and b"x-amz-target" not in names:
        text = "'X-Amz-Target' must be a 'SignedHeader' in the AWS Authorization."
        raise SqsError(INVALID_SIGNATURE, text)
    lines: list[bytes] = []
    for name in names:
        value = request.headers.get(name, b"").strip()
        if b"  " in value:
            value = _SPACES.sub(b" ", value)
        lines.append(name + b":" + value)
    lines.append(b"")
    return lines
