"""A relay that kills itself: `python -m ... DIALECT DSN BROKER 'before save' 2`.

The steps of its store and of its transactions are wrapped here; the relay itself is the product's.
"""

import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Final

import trio

import tidelog
from tidelog.outbox import Outbox
from tidelog.outbox.relay import Relay
from tidelog.outbox.relay_options import RelayOptions
from tidelog.outbox.store import BatchLimits

OF_THE_STORE: Final = ("open", "try_lock", "position", "rows", "save", "delete")
OF_THE_CLUSTER: Final = ("stage", "commit")
STEPS: Final = [
    f"{when} {step}" for step in (*OF_THE_STORE, *OF_THE_CLUSTER) for when in ("before", "after")
]


class Dying:
    """Kills this process at the n-th time of a step."""

    def __init__(self, step: str, count: int) -> None:
        self._step = step
        self._left = count

    def at(self, step: str) -> None:
        if step == self._step:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def wrapped(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def do(*args: Any, **options: Any) -> Any:  # noqa: ANN401
            self.at(f"before {name}")
            result = call(*args, **options)
            self.at(f"after {name}")
            return result

        return do

    def wrapped_async(
        self, name: str, call: Callable[..., Awaitable[Any]]
    ) -> Callable[..., Awaitable[Any]]:
        async def do(*args: Any, **options: Any) -> Any:  # noqa: ANN401
            self.at(f"before {name}")
            result = await call(*args, **options)
            self.at(f"after {name}")
            return result

        return do


async def main(dialect: str, dsn: str, broker: str, *, dying: Dying) -> None:
    store = Outbox(dialect=dialect).store(dsn)
    for name in OF_THE_STORE:
        setattr(store, name, dying.wrapped(name, getattr(store, name)))
    staging = dying.wrapped_async("stage", tidelog.TransactionTask.send_records)
    setattr(tidelog.TransactionTask, "send_records", staging)  # noqa: B010
    committing = dying.wrapped_async("commit", tidelog.Transaction.commit)
    setattr(tidelog.Transaction, "commit", committing)  # noqa: B010
    options = RelayOptions(0.01, BatchLimits(3, 1 << 20), 0.0, None, lambda _: None)
    async with tidelog.connect(broker) as client:
        await Relay(client, store, options).run()


if __name__ == "__main__":
    _, its_dialect, its_dsn, its_broker, its_step, its_count = sys.argv
    trio.run(lambda: main(its_dialect, its_dsn, its_broker, dying=Dying(its_step, int(its_count))))
