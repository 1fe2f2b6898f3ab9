"""Trials of the SQS front with programs of others: `make sqs-trial`.

They take minutes, and fetch the SDKs for JavaScript and Java with npm and Maven, so `make test`
leaves them out. A trial whose program is missing is skipped, and one line names it.
"""

import os

collect_ignore_glob = [] if os.environ.get("TIDELOG_SQS_TRIALS") else ["test_*.py"]
