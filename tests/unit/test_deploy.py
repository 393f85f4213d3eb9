"""What can be checked of the deployment files by reading them; no container is built here."""

from __future__ import annotations

import re
import shlex
import tomllib
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from boyd.agent import agent_from_file
from boyd.cli.group import boyd
from boyd.settings import environment_names

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))
OURS = {name: one for name, one in COMPOSE["services"].items() if name != "redis"}
VARIABLES = {*environment_names(), *(f"{name}_FILE" for name in environment_names())}


class Strict(ConfigParser):
    """Unit files: names as they are, and no interpolation."""

    def __init__(self) -> None:
        super().__init__(interpolation=None, strict=True)

    def optionxform(self, optionstr: str) -> str:
        return optionstr


def parses(arguments: list[str]) -> bool:
    """Whether `boyd` takes these arguments; nothing is started."""
    name, *rest = arguments
    command = boyd.get_command(click.Context(boyd), name)
    assert command is not None, f"no command {name!r}"
    command.make_context(name, rest)
    return True


def seconds(text: str) -> int:
    return int(text.removesuffix("s"))


@pytest.mark.parametrize("name", OURS)
def test_every_service_runs_a_command_that_exists_with_options_that_exist(name: str) -> None:
    assert parses(OURS[name]["command"])


def test_compose_has_every_process_and_two_beats() -> None:
    assert {one["command"][0] for one in OURS.values()} == {"worker", "beat", "api"}
    assert OURS["beat"]["deploy"]["replicas"] == 2
    assert {"--pool", "prefork"} <= set(OURS["act"]["command"])


def test_workers_together_consume_every_usual_queue() -> None:
    from boyd.queues import DEFAULT

    queues = [
        queue
        for one in OURS.values()
        if "--queues" in one["command"]
        for queue in one["command"][one["command"].index("--queues") + 1].split(",")
    ]

    assert sorted(DEFAULT) == sorted(queues)


@pytest.mark.parametrize("name", OURS)
def test_no_service_is_privileged_and_all_stop_in_peace(name: str) -> None:
    one = OURS[name]

    assert one["cap_drop"] == ["ALL"]
    assert one["read_only"] is True
    assert one["init"] is True
    assert one["restart"] == "always"
    assert not {"privileged", "network_mode", "pid", "cap_add"} & set(one)
    assert seconds(one["stop_grace_period"]) >= (90 if one["command"][0] == "worker" else 10)


@pytest.mark.parametrize("name", OURS)
def test_services_have_settings_that_exist_and_no_secret_in_them(name: str) -> None:
    environment = OURS[name]["environment"]

    assert set(environment) <= VARIABLES
    assert not any("redis://" in str(value) for value in environment.values())
    assert environment["BOYD_REDIS_URL_FILE"] == "/run/secrets/redis_url"
    assert "redis_url" in OURS[name]["secrets"]


def test_nothing_listens_outside_of_the_machine() -> None:
    ports = [port for one in COMPOSE["services"].values() for port in one.get("ports", ())]

    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_redis_keeps_everything_and_throws_nothing_out() -> None:
    redis = COMPOSE["services"]["redis"]
    lines = (DEPLOY / "redis.conf").read_text("utf-8").splitlines()
    (mounted,) = [v for v in redis["volumes"] if v.startswith("./deploy/redis.conf:")]

    assert redis["command"] == ["redis-server", mounted.split(":")[1]]
    assert "appendonly yes" in lines
    assert "maxmemory-policy noeviction" in lines
    assert any(line.startswith("maxmemory ") for line in lines)
    assert "redis:/data" in redis["volumes"]
    assert redis["healthcheck"]["test"][0] == "CMD-SHELL"


def test_what_compose_mounts_and_names_is_there_or_is_a_secret() -> None:
    for one in COMPOSE["services"].values():
        for volume in one.get("volumes", ()):
            source = re.sub(r"\$\{\w+:-(.*?)\}", r"\1", volume).split(":")[0]
            assert source in COMPOSE["volumes"] or (ROOT / source).is_file(), volume
        assert set(one.get("secrets", ())) <= set(COMPOSE["secrets"])
    ignored = (DEPLOY / ".gitignore").read_text("utf-8").splitlines()
    for secret in COMPOSE["secrets"].values():
        assert Path(secret["file"]).parent == Path("deploy/secrets")
    assert "secrets/" in ignored


def test_the_agent_that_compose_runs_loads() -> None:
    assert agent_from_file(DEPLOY / "agent.toml").settings.mode == "continuous"


def dockerfile() -> list[tuple[str, str]]:
    text = (DEPLOY / "Dockerfile").read_text("utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(line.split()[0], line.partition(" ")[2].strip()) for line in lines]


def test_the_image_runs_boyd_itself_and_not_as_root() -> None:
    last = dict(dockerfile())

    assert tomllib.loads(f"x = {last['ENTRYPOINT']}") == {"x": ["boyd"]}
    assert last["CMD"].startswith("[")
    assert last["STOPSIGNAL"] == "SIGTERM"
    assert int(last["USER"].split(":")[0]) >= 1000


def test_the_image_is_made_in_stages_with_pinned_versions_and_without_a_cache() -> None:
    steps = dockerfile()
    installs = [value for step, value in steps if step == "RUN" and "pip install" in value]

    assert [value.endswith(" AS build") for step, value in steps if step == "FROM"] == [True, False]
    assert installs
    assert all("--constraint constraints.txt" in value for value in installs)
    assert any(step == "ENV" and "PIP_NO_CACHE_DIR=1" in value for step, value in steps)


def test_the_image_is_built_from_what_the_ignore_file_lets_through() -> None:
    allowed = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    copied = [
        source
        for step, value in dockerfile()
        if step == "COPY" and not value.startswith("--from")
        for source in value.split()[:-1]
    ]

    assert "*" in allowed
    for source in copied:
        assert f"!{source}" in allowed
        assert (ROOT / source).exists()


def unit(path: Path) -> ConfigParser:
    parser = Strict()
    parser.read(path, encoding="utf-8")
    return parser


def test_there_is_a_unit_for_every_process() -> None:
    assert [path.stem for path in UNITS] == ["boyd-act", "boyd-api", "boyd-beat", "boyd-worker"]


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_every_unit_starts_a_command_that_exists_as_a_user_of_its_own(path: Path) -> None:
    service = unit(path)["Service"]
    program, *arguments = shlex.split(service["ExecStart"])

    assert program == "/opt/boyd/bin/boyd"
    assert parses(arguments)
    assert service["User"] == "boyd"
    assert service["EnvironmentFile"] == "/etc/boyd/boyd.env"


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_every_unit_is_restarted_for_ever_and_stops_in_peace(path: Path) -> None:
    service = unit(path)["Service"]
    least = 90 if " worker " in service["ExecStart"] else 10

    assert service["Restart"] == "always"
    assert unit(path)["Unit"]["StartLimitIntervalSec"] == "0"
    assert service["KillMode"] == "mixed"
    assert service["KillSignal"] == "SIGTERM"
    assert int(service["TimeoutStopSec"]) >= least
    assert service["NoNewPrivileges"] == "yes"


def test_the_example_of_an_environment_file_sets_what_exists() -> None:
    lines = (DEPLOY / "boyd.env.example").read_text("utf-8").splitlines()
    names = [line.partition("=")[0] for line in lines if line and not line.startswith("#")]

    assert names
    assert set(names) <= VARIABLES
