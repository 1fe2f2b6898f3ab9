"""A broker that counts its Python calls.

    python -m bench.counted_broker FIFO serve --data-dir DIR ...

SIGUSR1 begins to count, SIGUSR2 ends it. After each of them the broker writes into the FIFO what it
has counted since SIGUSR1, and closes it. While it counts, its clock nearly stands still.
"""

import json
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any, cast

import trio

from bench.call_counter import CallCounter
from bench.slow_clock import SlowClock
from tidelog.cli.main import main


def _install(fifo: Path) -> None:
    counter, clock = CallCounter(), SlowClock()
    # The broker's own entry has no way to give it a clock.
    trio.run = cast(Any, partial(trio.run, clock=clock))

    def on_signal(number: int, _: object) -> None:
        # Python runs this in the main thread, which is that of the broker's loop.
        found = counter.stop()
        fifo.write_text(json.dumps(sorted(found.items())), encoding="utf-8")
        clock.slow_down(is_slow=number == signal.SIGUSR1)
        if number == signal.SIGUSR1:
            counter.start()

    signal.signal(signal.SIGUSR1, on_signal)
    signal.signal(signal.SIGUSR2, on_signal)


if __name__ == "__main__":
    _install(Path(sys.argv.pop(1)))
    main()
