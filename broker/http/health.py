"""The health pages: probes of Kubernetes, and the check before a node stops."""

from collections.abc import Callable

from msgspec.structs import asdict

from tidelog.broker.dispatch import Dispatcher
from tidelog.broker.handlers.safe_to_stop import SafeToStopHandler
from tidelog.broker.http.page import Handler, Page, Query, json_page
from tidelog.coordinator.node import ClusterNode


def health_pages(
    dispatcher: Dispatcher, cluster: Callable[[], ClusterNode | None]
) -> dict[str, Handler]:
    """Return the health pages of a broker, by path; `cluster` is `None` before it is found."""

    def live(_: Query) -> Page:
        # A stalled event loop answers nothing, and the probe times out.
        return json_page({"live": True})

    def ready(_: Query) -> Page:
        reason = dispatcher.unready_reason
        if reason is None:
            return json_page({"ready": True})
        return json_page({"ready": False, "reason": reason}, 503)

    async def safe_to_stop(_: Query) -> Page:
        node = cluster()
        if node is None:
            return json_page({"is_safe": False, "reasons": [dispatcher.waiting_for]}, 503)
        found = await SafeToStopHandler(node).check(node.node_id)
        content = {
            **asdict(found),
            "partitions": [asdict(each) for each in found.partitions],
        }
        return json_page(content, 200 if found.is_safe else 503)

    return {
        "/health/live": live,
        "/health/ready": ready,
        "/health/safe-to-stop": safe_to_stop,
    }
