"""`tidelog serve` with one of the simulator's planted bugs: does a history show it?

python -m tests.system.histories.mutant_broker NAME serve ...
"""

import sys

from tests.simulation.kinds import find_mutant
from tidelog.cli.main import main


def mutant_program(name: str) -> list[str]:
    """Return the command for a broker with this bug.

    Raises:
        KeyError: There is no such bug.
    """
    return [sys.executable, "-m", "tests.system.histories.mutant_broker", find_mutant(name).name]


if __name__ == "__main__":
    with find_mutant(sys.argv.pop(1)).planted():
        main()
