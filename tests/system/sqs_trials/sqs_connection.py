"""A client of SQS without an SDK: it repeats requests as SDKs do, and counts their answers."""

import hashlib
import hmac
import json
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from random import Random
from time import time  # noqa: TID251  (signatures have the time of day)
from typing import Any, Final, NamedTuple, final

import trio

Reply = dict[str, Any]

_ATTEMPTS: Final = 1_000
_TYPE: Final = "application/x-amz-json-1.0"
_THROTTLED: Final = ("RequestThrottled", "ThrottlingException")
_REGION: Final = "us-east-1"
_HEADERS_END: Final = b"\r\n\r\n"


class AccessKey(NamedTuple):
    """An access key."""

    key_id: str
    secret: str


class Refused(Exception):  # noqa: N818  (an answer, not a defect)
    """A request that SDKs do not repeat."""


class _Lost(Exception):  # noqa: N818
    """The connection ended before the response."""


@final
class SqsConnection:
    """A connection to one of several fronts; the next one after each failure."""

    def __init__(
        self, ports: Sequence[int], random: Random, *, log: Counter[str], key: AccessKey | None
    ) -> None:
        self._ports = ports
        self._place = random.randrange(len(ports))
        self._random = random
        self._log = log
        self._key = key
        self._stream: trio.SocketStream | None = None

    async def call(self, action: str, **parameters: object) -> Reply:
        """Return the answer to an action, which is repeated until there is one.

        Raises:
            Refused: SDKs do not repeat the action.
        """
        body = json.dumps(parameters).encode()
        for attempt in range(_ATTEMPTS):
            try:
                status, answer = await self._exchange(action, body)
            except (OSError, trio.BrokenResourceError, _Lost) as error:
                self._log[f"lost: {type(error).__name__}"] += 1
            else:
                if status == 200:
                    return answer
                code = str(answer.get("__type", "")).rpartition("#")[2]
                self._log[f"{status} {code}"] += 1
                if status < 500 and code not in _THROTTLED:
                    raise Refused(action, status, code, str(answer.get("message")))
            await self.close()
            self._place += 1
            await trio.sleep(self._random.uniform(0, min(0.05 * 2**attempt, 1)))
        raise AssertionError(f"{action} was never answered")

    async def close(self) -> None:
        """Close the connection; the next call opens another one."""
        if self._stream is not None:
            await trio.aclose_forcefully(self._stream)
            self._stream = None

    async def _exchange(self, action: str, body: bytes) -> tuple[int, Reply]:
        port = self._ports[self._place % len(self._ports)]
        if self._stream is None:
            self._stream = await trio.open_tcp_stream("127.0.0.1", port)
        headers = self._headers(action, f"127.0.0.1:{port}", body)
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        await self._stream.send_all(
            f"POST / HTTP/1.1\r\n{lines}content-length: {len(body)}\r\n\r\n".encode() + body
        )
        data = await self._read_while(b"", lambda data: _HEADERS_END not in data)
        head, _, rest = data.partition(_HEADERS_END)
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        length = int(fields[b"content-length"])
        content = await self._read_while(rest, lambda data: len(data) < length)
        if fields.get(b"connection") == b"close":
            await self.close()
        return int(head.split()[1]), json.loads(content or b"{}")

    async def _read_while(self, data: bytes, is_partial: Callable[[bytes], bool]) -> bytes:
        assert self._stream is not None
        while is_partial(data):
            chunk = await self._stream.receive_some()
            if not chunk:
                raise _Lost
            data += bytes(chunk)
        return data

    def _headers(self, action: str, host: str, body: bytes) -> dict[str, str]:
        headers = {"content-type": _TYPE, "host": host, "x-amz-target": f"AmazonSQS.{action}"}
        if self._key is None:
            return headers
        at = datetime.fromtimestamp(time(), UTC).strftime("%Y%m%dT%H%M%SZ")
        headers["x-amz-date"] = at
        names = ";".join(sorted(headers))
        canonical = "\n".join(
            [
                *("POST", "/", ""),
                *(f"{name}:{headers[name]}" for name in sorted(headers)),
                *("", names, hashlib.sha256(body).hexdigest()),
            ]
        )
        scope = f"{at[:8]}/{_REGION}/sqs/aws4_request"
        digest = hashlib.sha256(canonical.encode()).hexdigest()
        key = f"AWS4{self._key.secret}".encode()
        for part in scope.split("/"):
            key = hmac.digest(key, part.encode(), "sha256")
        text = f"AWS4-HMAC-SHA256\n{at}\n{scope}\n{digest}".encode()
        headers["authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={self._key.key_id}/{scope}, SignedHeaders={names},"
            f" Signature={hmac.digest(key, text, 'sha256').hex()}"
        )
        return headers
