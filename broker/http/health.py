"""The health pages: probes of Kubernetes, and the question whether a node may stop."""

from tidelog.broker.dispatch import Dispatcher
from tidelog.broker.http.page import Handler, Page, Query, json_page


def health_pages(dispatcher: Dispatcher) -> dict[str, Handler]:
    """Return the health pages of a broker, by path."""

    def live(_: Query) -> Page:
        # A stalled event loop answers nothing, and the probe times out.
        return json_page({"live": True})

    def ready(_: Query) -> Page:
        reason = dispatcher.unready_reason
        if reason is None:
            return json_page({"ready": True})
        return json_page({"ready": False, "reason": reason}, 503)

    return {"/health/live": live, "/health/ready": ready}
