"""The list of all dashboards."""

from typing import Final

from tools.dashboards.cluster import CLUSTER
from tools.dashboards.grafana import Board
from tools.dashboards.queues import QUEUES
from tools.dashboards.sqs import SQS
from tools.dashboards.topics import TOPICS

BOARDS: Final[tuple[Board, ...]] = (CLUSTER, TOPICS, QUEUES, SQS)
