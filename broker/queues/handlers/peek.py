"""Handler of PEEK: reads messages without receiving them."""

from typing import Final, final

import trio

from tidelog.broker.queues.queue_server import QueueServer
from tidelog.broker.requests.commit_wait import DECISION_TIMEOUT_S, deciding_until
from tidelog.broker.requests.response import ResponseHandle
from tidelog.wire.env.env import BytesLike
from tidelog.wire.errors import InvalidRequestError
from tidelog.wire.messages.queues import (
    RECEIVE_COUNT_MAX,
    MessageState,
    PeekedRun,
    PeekReply,
    PeekRequest,
)
from tidelog.wire.transport.write_buffer import FileRegion

_BOTH_FORMATS_VERSION: Final = 2
"""First version of the API whose clients read batches of format version 2."""
_STATES: Final = {int(state): state for state in MessageState}


@final
class PeekHandler:
    """Returns messages without leases."""

    def __init__(self, server: QueueServer, nursery: trio.Nursery, *, max_bytes: int) -> None:
        """Return messages of `server`, at most `max_bytes` in one reply."""
        self._server = server
        self._nursery = nursery
        self._max_bytes = max_bytes

    def handle(self, request: PeekRequest, response: ResponseHandle) -> None:
        """Reply once all messages are loaded.

        Raises:
            InvalidRequestError: The request is malformed.
        """
        if not 1 <= request.max_messages <= RECEIVE_COUNT_MAX:
            raise InvalidRequestError(
                f"max_messages must be from 1 to {RECEIVE_COUNT_MAX}, not {request.max_messages}"
            )
        unknown = [state for state in request.states if state not in _STATES]
        if unknown:
            raise InvalidRequestError(f"no state of messages has number {unknown[0]}")
        self._nursery.start_soon(self._peek, request, response)

    async def _peek(self, request: PeekRequest, response: ResponseHandle) -> None:
        with response:
            hosted = self._server.find(request.queue_id, request.partition)
            with deciding_until(trio.current_time() + DECISION_TIMEOUT_S):
                await hosted.catch_up()
                if hosted.letters.are_on_the_way:
                    await hosted.wait_moved()
                    await hosted.catch_up()
            states = [_STATES[state] for state in request.states]
            runs, next_offset = hosted.core.peek(
                states, max(request.from_offset, 0), request.max_messages
            )
            pieces: list[BytesLike | FileRegion] = []
            if request.max_bytes and runs:
                max_bytes = min(request.max_bytes, self._max_bytes)
                is_older = response.version < _BOTH_FORMATS_VERSION
                gathered = await hosted.records.read(runs, max_bytes=max_bytes, is_older=is_older)
                pieces.extend(hosted.records.pieces(gathered, hosted.records.partition())[1])
                if gathered.stopped_at is not None:
                    runs, next_offset = _cut(runs, gathered.stopped_at), gathered.stopped_at
            response.reply(PeekReply(runs, next_offset, hosted.now_ms()), pieces)


def _cut(runs: list[PeekedRun], end: int) -> list[PeekedRun]:
    """Return the parts of runs below an offset."""
    return [
        PeekedRun(
            run.first_offset,
            min(run.count, end - run.first_offset),
            run.state,
            run.receive_count,
            run.visible_at_ms,
            run.holder,
            run.reason,
        )
        for run in runs
        if run.first_offset < end
    ]
