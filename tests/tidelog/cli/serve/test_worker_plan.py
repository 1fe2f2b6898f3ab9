"""The configuration of each broker of `tidelog serve --workers`."""

import re
import socket
from pathlib import Path

import pytest

from tests.advice import part_of
from tidelog.broker.config.broker_config import BrokerConfig, resolve_config
from tidelog.cli.serve.worker_plan import check_no_workers, worker_plans
from tidelog.wire.errors import ConfigError, DataDirectoryError


def base(directory: Path, **settings: object) -> BrokerConfig:
    given: dict[str, object] = {"listen": "127.0.0.1:9000", "node_id": 4, **settings}
    return BrokerConfig(data_dir=str(directory), **given)  # type: ignore[arg-type]


def with_data(directory: Path, *numbers: int) -> Path:
    """Make what is left of brokers in the directories of workers."""
    for number in numbers:
        (directory / str(number)).mkdir()
        (directory / str(number) / "node").touch()
    return directory


def test_ids_ports_and_directories_are_counted_up_in_one_failure_domain(tmp_path: Path) -> None:
    plans = worker_plans(base(tmp_path), 3)

    assert [plan.node_id for plan in plans] == [4, 5, 6]
    assert [plan.listen for plan in plans] == ["127.0.0.1:9000", "127.0.0.1:9001", "127.0.0.1:9002"]
    assert [plan.data_dir for plan in plans] == [str(tmp_path / name) for name in "123"]
    assert {plan.broker_rack for plan in plans} == {socket.gethostname()}


def test_addresses_for_http_are_counted_up_if_there_are_any(tmp_path: Path) -> None:
    def addresses(http_listen: str) -> list[str]:
        plans = worker_plans(base(tmp_path, http_listen=http_listen), 2)
        return [plan.http_listen for plan in plans]

    assert addresses("127.0.0.1:8480") == ["127.0.0.1:8480", "127.0.0.1:8481"]
    assert addresses("") == ["", ""]
    assert addresses("127.0.0.1:0") == ["127.0.0.1:0", "127.0.0.1:0"]


def test_workers_that_are_alone_are_each_others_peers(tmp_path: Path) -> None:
    plans = worker_plans(base(tmp_path, listen="[::1]:9000"), 2)

    assert {plan.peers for plan in plans} == {"4=[::1]:9000,5=[::1]:9001"}


def test_peers_and_failure_domain_that_were_given_stay(tmp_path: Path) -> None:
    peers = "4=a:1,5=a:2,6=b:1"

    plans = worker_plans(base(tmp_path, peers=peers, broker_rack="rack"), 2)

    assert {(plan.peers, plan.broker_rack) for plan in plans} == {(peers, "rack")}


def test_advertised_ports_count_up_and_are_the_addresses_of_peers(
    tmp_path: Path,
) -> None:
    plans = worker_plans(base(tmp_path, listen="0.0.0.0:9000", advertised="db1:8433"), 2)

    assert [plan.listen for plan in plans] == ["0.0.0.0:9000", "0.0.0.0:9001"]
    assert [plan.advertised for plan in plans] == ["db1:8433", "db1:8434"]
    assert {plan.peers for plan in plans} == {"4=db1:8433,5=db1:8434"}


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"listen": "127.0.0.1:0"}, "listen has port 0, but workers need fixed ports"),
        ({"listen": "127.0.0.1:65535"}, "port 65536 does not exist; choose a lower port"),
        ({"listen": "0.0.0.0:9000"}, "set advertised"),
        ({"listen": "[::]:9000"}, "set advertised"),
        ({"peers": "4=a:1,6=b:1"}, "peers: node 5 itself is missing; add 5=HOST:PORT"),
    ],
)
def test_contradicting_settings_are_an_error_of_one_line(
    settings: dict[str, object], complaint: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as refused:
        worker_plans(base(tmp_path, **settings), 2)

    assert complaint in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("wrong", "advice", "right"),
    [
        ({"listen": "127.0.0.1:0"}, "; choose a port", {"listen": "127.0.0.1:9000"}),
        ({"listen": "127.0.0.1:65535"}, "; choose a lower port", {"listen": "127.0.0.1:65534"}),
        ({"listen": "0.0.0.0:9000"}, ", or listen on one address", {"listen": "127.0.0.1:9000"}),
        ({"peers": "4=a:1"}, "; add 5=HOST:PORT to the list", {"peers": "4=a:1,5=a:2"}),
    ],
)
def test_a_contradiction_is_resolved_as_its_error_recommends(
    wrong: dict[str, object], advice: str, right: dict[str, object], *, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=re.escape(advice)):
        worker_plans(base(tmp_path, **wrong), 2)

    assert len(worker_plans(base(tmp_path, **right), 2)) == 2


@pytest.mark.parametrize("left", ["node", "metadata", "topics"])
def test_the_directory_of_a_single_broker_is_left_alone(left: str, tmp_path: Path) -> None:
    (tmp_path / left).mkdir()

    with pytest.raises(DataDirectoryError, match="the data of a single broker; to use it"):
        worker_plans(base(tmp_path), 2)


def test_fewer_workers_than_there_is_data_of_are_refused_and_more_are_not(tmp_path: Path) -> None:
    with_data(tmp_path, 1, 2, 3)

    with pytest.raises(DataDirectoryError, match="of 3 workers, not of 2; start --workers 3"):
        worker_plans(base(tmp_path), 2)
    assert len(worker_plans(base(tmp_path), 3)) == 3
    assert len(worker_plans(base(tmp_path), 4)) == 4


def test_a_single_broker_does_not_start_in_a_data_directory_of_workers(tmp_path: Path) -> None:
    check_no_workers(str(tmp_path))
    with_data(tmp_path, 1, 2)

    with pytest.raises(DataDirectoryError, match="data of 2 workers; start them with --workers 2"):
        check_no_workers(str(tmp_path))


def test_workers_at_a_wildcard_address_are_advertised_by_the_recommended_variable(
    tmp_path: Path,
) -> None:
    flags = {"data_dir": str(tmp_path), "listen": "[::]:9000"}
    with pytest.raises(ConfigError) as refused:
        worker_plans(resolve_config(file=None, environment={}, flags=flags).config, 2)

    variable = part_of(str(refused.value), r"set advertised \((\w+)=HOST:PORT\)")
    resolved = resolve_config(file=None, environment={variable: "a:1"}, flags=flags)
    assert [plan.advertised for plan in worker_plans(resolved.config, 2)] == ["a:1", "a:2"]


def test_a_broker_starts_in_its_own_data_directory_beside_other_files(tmp_path: Path) -> None:
    with_data(tmp_path, 1)
    (tmp_path / "node").touch()

    check_no_workers(str(tmp_path))
