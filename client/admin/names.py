"""Names of topics and queues, read in pages.

Shell: sends requests to any broker, and repeats them while that may help.
"""

from tidelog.client.cluster.cluster_client import ClusterClient
from tidelog.wire.errors import WireFormatError
from tidelog.wire.messages.field_types import LIST_LENGTH_MAX
from tidelog.wire.messages.names import ListNamesReply, ListNamesRequest
from tidelog.wire.protocol.api import Api


async def list_names(
    cluster: ClusterClient,
    api: Api[ListNamesRequest, ListNamesReply],
    prefix: str = "",
    *,
    after: str = "",
    limit: int | None = None,
) -> list[str]:
    """Return up to `limit` names with a prefix behind `after`, sorted; `None` for no limit.

    Raises:
        ValueError: The limit is below 1.
        WireFormatError: A page brings the list no further.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"limit must be at least 1, not {limit}")
    names: list[str] = []
    while True:
        left = LIST_LENGTH_MAX if limit is None else min(limit - len(names), LIST_LENGTH_MAX)
        request = ListNamesRequest(prefix, after, left)
        page = await cluster.call_any(api, request, is_repeatable=True)
        if page.has_more and (not page.names or page.names[-1] <= after):
            raise WireFormatError(f"{api.key.name}: a page of names ends before {after!r}")
        names += page.names
        if not page.has_more or len(names) == limit:
            return names
        after = page.names[-1]
