"""Credentials of Spark options, of the driver's environment and of profiles, without leaks."""

import pickle
from pathlib import Path

import pytest

from tests.spark_connector.spark_fixture import SparkFixture, close_idle
from tidelog.client.topic_partition import TopicPartition
from tidelog.spark_connector.connection.pool import borrowed
from tidelog.spark_connector.options import ConnectionOptions
from tidelog.spark_connector.read.read_options import ReadOptions
from tidelog.spark_connector.user_settings import with_user_settings
from tidelog.wire.env.real.user_files import UserFiles
from tidelog.wire.errors import AuthenticationFailedError, ConfigError

SECRET = "a secret password"
BASE = {"bootstrap.servers": "127.0.0.1:8433", "subscribe": "orders"}


def connection(raw: dict[str, str], **environment: str) -> ConnectionOptions:
    sources = UserFiles(environment)
    return ReadOptions.parse(with_user_settings(raw, sources), is_stream=False).connection


def test_options_come_before_the_environment_of_the_driver() -> None:
    environment = {"TIDELOG_USER": "bob", "TIDELOG_PASSWORD": "of bob"}
    found = connection(BASE, **environment)
    assert (found.user, found.password) == ("bob", "of bob")
    given = {"client.User": "alice", "CLIENT.PASSWORD": f" {SECRET} "}
    found = connection(BASE | given, **environment)
    assert (found.user, found.password, found.token) == ("alice", f" {SECRET} ", None)


def test_a_profile_names_brokers_and_credentials(tmp_path: Path) -> None:
    file = tmp_path / "tidelog" / "profiles.toml"
    file.parent.mkdir()
    file.write_text('[prod]\nbrokers = "a:1"\ntoken = "tdl_x"\n', encoding="utf-8")
    file.chmod(0o600)
    raw = {"subscribe": "orders", "client.profile": "prod"}
    found = connection(raw, XDG_CONFIG_HOME=str(tmp_path))
    assert [str(each) for each in found.addresses] == ["a:1"]
    assert found.token == "tdl_x"
    assert str(connection(raw | BASE, XDG_CONFIG_HOME=str(tmp_path)).addresses[0]).endswith("8433")


def test_the_brokers_of_a_kafka_job_come_before_the_environment() -> None:
    raw = {"subscribe": "orders", "kafka.Bootstrap.Servers": "a:1"}
    found = connection(raw, TIDELOG_BROKER="b:2")
    assert [str(each) for each in found.addresses] == ["a:1"]


def test_a_token_file_is_read_when_spark_plans(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("tdl_x\n", encoding="utf-8")
    found = connection(BASE, TIDELOG_TOKEN_FILE=str(tmp_path / "token"))
    assert found.token == "tdl_x"
    assert pickle.loads(pickle.dumps(found)) == found  # It goes to executors.


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"client.user": "alice"}, "user alice has no password"),
        ({"client.password": SECRET}, "password needs user"),
        ({"client.password": "", "client.user": "alice"}, "client.password must not be empty"),
        ({"client.token": SECRET, "client.user": "a", "client.password": SECRET}, "exclude each"),
        ({"client.pasword": SECRET}, "option 'client.pasword' is not known; did you mean client.p"),
    ],
)
def test_errors_have_no_secrets(given: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why) as raised:
        connection(BASE | given)
    assert SECRET not in str(raised.value)


def test_options_do_not_show_their_secrets() -> None:
    raw = BASE | {"client.user": "alice", "client.password": SECRET}
    options = ReadOptions.parse(with_user_settings(raw, UserFiles({})), is_stream=False)
    assert SECRET not in repr(options)
    assert "another secret" not in repr(connection(BASE | {"client.token": "another secret"}))


def test_blocking_connections_prove_the_identity(town: SparkFixture) -> None:
    town.create()
    town.client.security.create_user(f"user-{town.topic}", SECRET)
    token = town.client.security.create_token(f"user-{town.topic}")
    for given in (
        {"client.user": f"user-{town.topic}", "client.password": SECRET},
        {"client.token": token},
    ):
        options = connection(town.raw(**given))
        with borrowed(options) as cluster:
            assert cluster.topic(town.topic).name == town.topic
            cluster.leader_of(TopicPartition(town.topic, 0))
    close_idle()


@pytest.mark.parametrize(
    "given",
    [
        {"client.user": "mallory", "client.password": SECRET},
        {"client.token": "tdl_0123456789ab_" + "A" * 43},
    ],
)
def test_wrong_credentials_fail_in_one_line_without_secrets(
    town: SparkFixture, given: dict[str, str]
) -> None:
    town.create()
    options = connection(town.raw(**given))
    with (
        pytest.raises(AuthenticationFailedError, match=r"^authentication failed; check") as raised,
        borrowed(options) as cluster,
    ):
        cluster.topic(town.topic)
    assert SECRET not in str(raised.value)
    assert "AAAA" not in str(raised.value)
