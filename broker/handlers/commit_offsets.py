"""Handler of COMMIT_OFFSETS, which the leader of the cluster answers."""

from typing import final

from tidelog.broker.requests.response import ResponseHandle
from tidelog.coordinator.group_coordinator.coordinator import GroupCoordinator
from tidelog.coordinator.groups.commits import CommitResult
from tidelog.wire.errors import BrokerError
from tidelog.wire.messages.groups import CommitOffsetsRequest


@final
class CommitHandler:
    """Takes commits without a task for each, since they are frequent."""

    def __init__(self, groups: GroupCoordinator) -> None:
        """Pass commits to `groups`."""
        self._groups = groups

    def handle(self, request: CommitOffsetsRequest, response: ResponseHandle) -> None:
        """Store one commit, and reply when it is committed.

        Raises:
            BrokerError: The commit is refused.
        """

        def done(result: CommitResult) -> None:
            if isinstance(result, BrokerError):
                response.caught(result)
                return
            # Not `with response`: it would add two calls to each commit.
            try:
                response.reply(result)
            except Exception as error:  # noqa: BLE001  (the supervisor)
                response.caught(error)

        self._groups.commit_soon(request, done)
