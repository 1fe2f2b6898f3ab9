"""Clock of the event loop at the cost of one call.

Shell: the clock is trio's, which tests and the simulator replace.
"""

from collections.abc import Callable

import trio


def loop_clock() -> Callable[[], float]:
    """Return the function that reads the monotonic clock of this run of the loop, in seconds.

    It returns what `trio.current_time` does, which looks up the run at each call. Call it in the
    loop, and use the function in the same run only.
    """
    return trio.lowlevel.current_clock().current_time
