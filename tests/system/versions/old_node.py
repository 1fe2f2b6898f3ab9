"""`tidelog serve` as a version without feature levels, which reports none.

python -m tests.system.versions.old_node serve ...
"""

import sys
from typing import Final

from tidelog.cli.main import main
from tidelog.coordinator import node
from tidelog.coordinator.controller import broker_lifecycle

OLD_NODE: Final = (sys.executable, "-m", "tests.system.versions.old_node")

if __name__ == "__main__":
    for module in (node, broker_lifecycle):
        module.OWN_LEVELS = None  # type: ignore[attr-defined]
    main()
