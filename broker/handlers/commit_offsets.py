"""Consumer groups: what their members and administrators ask of the node that leads the cluster."""

from typing import final

from tidelog.broker.requests.response import ResponseHandle
from tidelog.coordinator.group_coordinator.coordinator import GroupCoordinator
from tidelog.coordinator.groups.commits import CommitResult
from tidelog.wire.errors import BrokerError
from tidelog.wire.messages.groups import CommitOffsetsRequest


@final
class CommitHandler:
    """Takes commits, of which there are many, without a task for each."""

    def __init__(self, groups: GroupCoordinator) -> None:
        """Hand them to `groups`."""
        self._groups = groups

    def handle(self, request: CommitOffsetsRequest, response: ResponseHandle) -> None:
        """Have one commit stored; it is answered when it is.

        Raises:
            BrokerError: It is refused.
        """

        def done(result: CommitResult) -> None:
            with response:
                if isinstance(result, BrokerError):
                    raise result
                response.reply(result)

        self._groups.commit_soon(request, done)
