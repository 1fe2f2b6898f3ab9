"""The expressions of all dashboards, with values for the variables of Grafana."""

import re
from typing import Final

from tools.dashboards.boards import BOARDS

_VALUES: Final = {"__rate_interval": "5m", "cluster": "", "queue": ".*", "owner": ".*"}


def panel_expressions(cluster: str = "") -> dict[str, str]:
    """Return the expression of each query, by dashboard, panel and legend."""
    values = {**_VALUES, "cluster": cluster}
    return {
        f"{board.uid}: {panel['title']}: {target['legendFormat']}": re.sub(
            r"\$(\w+)", lambda found: values.get(found[1], ".*"), target["expr"]
        )
        for board in BOARDS
        for panel in board.json()["panels"]
        for target in panel.get("targets", ())
    }
