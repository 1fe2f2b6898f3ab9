"""Pages of the SQS front for probes and scrapes: `/health`, `/ready` and `/metrics`.

Shell: it waits for a broker. No URL of a queue has one of these paths, since that begins with an
account.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, final

import msgspec
import trio

from tidelog.gateway.sqs.http.messages import HttpResponse
from tidelog.wire.errors import TidelogError
from tidelog.wire.metrics.exposition import CONTENT_TYPE, expose
from tidelog.wire.metrics.metric import Family

_READY_S: Final = 2.0
"""Time for a broker to answer, in seconds."""
_NO_STORE: Final = (("Cache-Control", "no-store"),)


@final
class FrontPages:
    """The pages, without authentication: they have counts and no names of queues."""

    def __init__(
        self,
        families: Callable[[], Iterable[Family]],
        check: Callable[[], Awaitable[None]],
        is_draining: Callable[[], bool],
    ) -> None:
        """Show `families`, and as the reason of a front that is not ready the error of `check`."""
        self._families = families
        self._check = check
        self._is_draining = is_draining
        self._pages: Mapping[bytes, Callable[[], Awaitable[HttpResponse]]] = {
            b"/health": self._health,
            b"/metrics": self._metrics,
            b"/ready": self._ready,
        }

    async def page_of(self, target: bytes) -> HttpResponse | None:
        """Return the page of a target, `None` if it is none."""
        page = self._pages.get(target.partition(b"?")[0])
        return None if page is None else await page()

    async def _health(self) -> HttpResponse:
        # A stalled event loop answers nothing, and the probe times out.
        return _json({"live": True})

    async def _ready(self) -> HttpResponse:
        reason = "the front stops" if self._is_draining() else await self._unready_reason()
        if reason is None:
            return _json({"ready": True})
        return _json({"ready": False, "reason": reason}, 503)

    async def _unready_reason(self) -> str | None:
        """Return why the front can serve nothing; `None` if it can."""
        try:
            with trio.fail_after(_READY_S):
                await self._check()
        except trio.TooSlowError:
            return f"no broker has answered within {_READY_S:.0f} s"
        except TidelogError as error:
            return str(error)
        return None

    async def _metrics(self) -> HttpResponse:
        return HttpResponse(200, CONTENT_TYPE, b"".join(expose(self._families())), _NO_STORE)


def _json(content: object, status: int = 200) -> HttpResponse:
    return HttpResponse(status, "application/json", msgspec.json.encode(content) + b"\n", _NO_STORE)
