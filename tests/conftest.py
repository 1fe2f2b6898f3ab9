"""Settings that hold for every test, and how the tests are shared out."""

import os
import signal

import hypothesis
import pytest

from tests.distribution import WholeFiles, place_of

# The same examples in every run: a red test is red for everyone. Deadlines are off because a
# busy machine is not a bug; pytest's timeout ends what hangs.
hypothesis.settings.register_profile("tidelog", derandomize=True, deadline=None)

# Many examples, others in every run: HYPOTHESIS_PROFILE=thorough make test ARGS="--timeout=0"
hypothesis.settings.register_profile("thorough", max_examples=2000, deadline=None)

hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "tidelog"))


def pytest_configure() -> None:
    """Heed Ctrl-C, and let brokers do so: shells have it ignored by what runs in the background."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let what takes long begin early; apart from that the order stays a random one."""
    items.sort(key=lambda item: place_of(item.nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> WholeFiles | None:
    """Share the tests out by files, unless another way was asked for."""
    return WholeFiles(config, log) if config.option.dist == "load" else None
