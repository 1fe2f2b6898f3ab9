"""Entries of a batch that failed.

Shell: the log has the reason of a failure that is a defect, as for requests.
"""

import logging
from collections.abc import Mapping, Sequence

from tidelog.gateway.sqs.failures import error_of, failed_entry
from tidelog.gateway.sqs.protocol.errors import INTERNAL
from tidelog.gateway.sqs.protocol.replies import FailedEntry

_log = logging.getLogger("tidelog.gateway")


def failed_entries(ids: Sequence[str], failures: Mapping[int, Exception]) -> list[FailedEntry]:
    """Return the results of the entries of a batch that failed, by their places in it."""
    for place, failure in failures.items():
        if error_of(failure).shape is INTERNAL:
            _log.error("entry %s of a batch failed unexpectedly", ids[place], exc_info=failure)
    return [failed_entry(ids[place], failures[place]) for place in sorted(failures)]
