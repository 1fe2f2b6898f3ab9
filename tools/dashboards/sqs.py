"""The dashboard of SQS fronts, for their operators."""

from typing import Final

from tools.dashboards.grafana import Board, Panel, Row

_RATE: Final = "rate(tidelog_sqs_{}_total[$__rate_interval])"


def _seconds(quantile: float, actions: str) -> str:
    """Return a quantile of the time of some actions."""
    return (
        f"histogram_quantile({quantile}, sum by (action, le)"
        f" (rate(tidelog_sqs_request_seconds_bucket{{action{actions}}}[$__rate_interval])))"
    )


_REQUESTS: Final = Row(
    "Requests",
    (
        Panel(
            "Requests",
            "Requests that were answered, by action.",
            "reqps",
            {"{{action}}": f"sum by (action) ({_RATE.format('requests')})"},
        ),
        Panel(
            "Errors",
            "Requests that were answered with an error. ServiceUnavailable and InternalFailure are"
            " those of the service (SqsErrors); others are those of programs.",
            "reqps",
            {
                "{{error}}": "sum by (error)"
                ' (rate(tidelog_sqs_requests_total{error!=""}[$__rate_interval]))'
            },
        ),
        Panel(
            "Time of requests, 99 %",
            "Time from a complete request to its response. Receives are left out: they wait.",
            "s",
            {"{{action}}": _seconds(0.99, '!="ReceiveMessage"')},
        ),
        Panel(
            "Time of requests, median",
            "Time from a complete request to its response. Receives are left out: they wait.",
            "s",
            {"{{action}}": _seconds(0.5, '!="ReceiveMessage"')},
        ),
        Panel(
            "Waiting receives",
            "Receives that wait for messages.",
            "short",
            {"{{instance}}": "sum by (instance) (tidelog_sqs_receives_under_way)"},
        ),
        Panel(
            "Hang-ups",
            "Receives whose client hung up before the response. Many are a client with a timeout"
            " below WaitTimeSeconds.",
            "short",
            {"{{instance}}": f"sum by (instance) ({_RATE.format('abandoned_receives')})"},
        ),
    ),
)

_CONNECTIONS: Final = Row(
    "Connections",
    (
        Panel(
            "Open connections",
            "Connections of clients by front. A balancer that works spreads them.",
            "short",
            {"{{instance}}": "sum by (instance) (tidelog_sqs_connections)"},
        ),
        Panel(
            "New and refused connections",
            "Many new ones are clients without keep-alive. Refused ones are above"
            " --max-connections (SqsConnectionsRefused).",
            "short",
            {
                f"{{{{instance}}}} {what}": f"sum by (instance)"
                f" ({_RATE.format(f'connections_{what}')})"
                for what in ("opened", "refused")
            },
        ),
        Panel(
            "Access keys",
            "Access keys for which a front has a client of its own now.",
            "short",
            {"{{instance}}": "sum by (instance) (tidelog_sqs_access_keys)"},
        ),
    ),
)

SQS: Final = Board(
    "tidelog-sqs",
    "tidelog: SQS fronts",
    "Requests, errors, times and connections of SQS fronts, for their operators.",
    (),
    (_REQUESTS, _CONNECTIONS),
)
