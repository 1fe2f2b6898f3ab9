"""Settings of all tests, and the distribution of tests over processes."""

import gc
import os
import signal
from tempfile import mkdtemp

import hypothesis
import pytest

from tests.distribution import WholeFiles, place_of

# The same examples in every run: a failure is reproducible everywhere. Deadlines are off because
# a busy machine is not a bug; pytest's timeout ends hanging tests.
hypothesis.settings.register_profile("tidelog", derandomize=True, deadline=None)

# Many examples, others in every run: HYPOTHESIS_PROFILE=thorough make test ARGS="--timeout=0"
hypothesis.settings.register_profile("thorough", max_examples=2000, deadline=None)

# Broker processes of tests share a cluster secret, which is not that of the user.
os.environ.setdefault("XDG_CONFIG_HOME", mkdtemp(prefix="tidelog-tests-"))

hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "tidelog"))


def pytest_configure() -> None:
    """Handle Ctrl-C here and in brokers: shells let background processes ignore SIGINT."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start slow tests early; otherwise the order stays random."""
    items.sort(key=lambda item: place_of(item.nodeid))


def pytest_collection_finish() -> None:
    """Exclude modules and tests from garbage collections; all of them live until the end."""
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Use one process more than cores: the tests that start brokers mostly wait."""
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> WholeFiles | None:
    """Distribute the tests by files, unless another mode was requested."""
    return WholeFiles(config, log) if config.option.dist == "load" else None
