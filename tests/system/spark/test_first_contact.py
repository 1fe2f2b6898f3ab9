"""The program of the README runs as printed, in a virtual environment that is not activated."""

from tests.system.installed import Installation
from tests.system.spark.first_contact import printed, run
from tests.system.spark.world import World


def test_the_program_of_the_readme_runs_in_an_environment_that_is_not_activated(
    world: World, installation: Installation
) -> None:
    world.create()
    world.write([b"one", b"two"])
    program = installation.write("script.py", printed(world))

    said = run(installation, str(installation.python), program)

    assert said.count(f"|{world.topic}|") == 2, said
    assert said.endswith("exit code 0")
