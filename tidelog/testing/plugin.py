"""The pytest plugin of tidelog: fixtures of a broker, its topics, its queues and its client.

pytest loads it in every run of an environment with tidelog. So it imports nothing of tidelog
before a test asks for a fixture. It has no name `tidelog`: pytest asks each value of a plugin for
attributes, and `tidelog` would import the client.
"""

import re
import sys
from collections.abc import Generator, Iterator, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from itertools import count
from types import ModuleType
from typing import TYPE_CHECKING, Final, Literal, cast, final

import pytest

from tidelog.testing import QueueFactory, TopicFactory, load_broker_class

if TYPE_CHECKING:
    from tidelog import blocking
    from tidelog.testing.ephemeral_broker import EphemeralBroker

_SCOPE: Final = "tidelog_broker_scope"
_Scope = Literal["session", "package", "module", "class", "function"]
_NAME_MAX: Final = 100


@final
class _PlainImports(MetaPathFinder):
    """Finds modules of tidelog as Python does, without pytest's rewriting of asserts.

    pytest rewrites all modules of a package that has a plugin, which takes seconds.
    """

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """See `importlib.abc.MetaPathFinder`."""
        if fullname.startswith("tidelog."):
            return PathFinder.find_spec(fullname, path, target)
        return None


_plain_imports: Final = _PlainImports()
_killable: Final = pytest.StashKey["EphemeralBroker"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the settings of the plugin; this hook is the first one."""
    sys.meta_path.insert(0, _plain_imports)
    parser.addini(_SCOPE, "scope of tidelog_broker: session, module, function", default="session")


def pytest_unconfigure() -> None:
    """Leave imports as they were."""
    if _plain_imports in sys.meta_path:
        sys.meta_path.remove(_plain_imports)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Start a broker that the test has killed."""
    broker = item.config.stash.get(_killable, None)
    if broker is not None:
        broker.start()


def _scope_of(fixture_name: str, config: pytest.Config) -> _Scope:
    del fixture_name
    return cast("_Scope", config.getini(_SCOPE))


@pytest.fixture(scope="session")
def tidelog_settings() -> Mapping[str, object]:
    """Settings of the broker's configuration; override this fixture to change them."""
    return {}


@pytest.fixture(scope=_scope_of)
def tidelog_broker(
    tidelog_settings: Mapping[str, object],
    tmp_path_factory: pytest.TempPathFactory,
    pytestconfig: pytest.Config,
) -> "Iterator[EphemeralBroker]":
    """A broker on a free port; with xdist, each worker has its own."""
    spare_dir = str(tmp_path_factory.getbasetemp())
    with load_broker_class()(tidelog_settings, spare_dir=spare_dir) as broker:
        pytestconfig.stash[_killable] = broker
        yield broker
        del pytestconfig.stash[_killable]


@pytest.fixture(scope=_scope_of)
def tidelog_address(tidelog_broker: "EphemeralBroker") -> str:
    """`host:port` of the broker, for a client of any kind and for settings of a program."""
    return tidelog_broker.address


@pytest.fixture
def tidelog_client(tidelog_broker: "EphemeralBroker") -> "Generator[blocking.Client]":
    """A blocking client of the broker."""
    from tidelog import blocking  # noqa: PLC0415

    token = tidelog_broker.token
    with blocking.connect(tidelog_broker.address, token=token, profile="") as client:
        yield client


@pytest.fixture
def tidelog_topic_factory(
    tidelog_broker: "EphemeralBroker", request: pytest.FixtureRequest
) -> TopicFactory:
    """Return a function that creates topics and returns their names."""

    def create(partitions: int = 1, **options: object) -> str:
        name = _new_name(request)
        tidelog_broker.create_topic(name, partitions, **options)
        return name

    return create


@pytest.fixture
def tidelog_queue_factory(
    tidelog_broker: "EphemeralBroker", request: pytest.FixtureRequest
) -> QueueFactory:
    """Return a function that creates queues and returns their names."""

    def create(**options: object) -> str:
        name = _new_name(request)
        tidelog_broker.create_queue(name, **options)
        return name

    return create


@pytest.fixture
def tidelog_topic(tidelog_topic_factory: TopicFactory) -> str:
    """Name of a new topic with one partition."""
    return tidelog_topic_factory()


@pytest.fixture
def tidelog_queue(tidelog_queue_factory: QueueFactory) -> str:
    """Name of a new queue with the default settings."""
    return tidelog_queue_factory()


_numbers: Final = count(1)


def _new_name(request: pytest.FixtureRequest) -> str:
    """Return the name of a topic or queue: that of the test, and a number."""
    test = re.sub(r"[^a-zA-Z0-9]+", "_", request.node.name)[:_NAME_MAX]
    return f"{test}-{next(_numbers)}"
