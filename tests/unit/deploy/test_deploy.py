"""Static checks of the deployment files; no container is built here."""

from __future__ import annotations

import re
import shlex
import subprocess
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import yaml

from boyd.agent import agent_from_file
from boyd.settings.process_settings import IntakeSettings
from boyd.store.server.scripts import source_of
from boyd.text.queues import DEFAULT
from deploy_kit import DEPLOY, LEAST_GRACE, ROOT, VARIABLES, kind_of, parses, queues_of
from lua_scripts import NAMES

UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))
OURS = {name: service for name, service in COMPOSE["services"].items() if name != "redis"}
GUIDE = (ROOT / "docs" / "deployment.md").read_text("utf-8")


def seconds(text: str) -> int:
    return int(text.removesuffix("s"))


def settings_of(lines: str) -> list[str]:
    return [line for line in lines.splitlines() if line and not line.startswith("#")]


@pytest.mark.parametrize("name", OURS)
def test_every_service_runs_a_command_that_exists_with_options_that_exist(name: str) -> None:
    assert parses(OURS[name]["command"])


def test_compose_has_every_process_and_two_beats() -> None:
    assert {service["command"][0] for service in OURS.values()} == {
        "worker",
        "beat",
        "api",
        "archive",
        "traces",
    }
    assert OURS["beat"]["deploy"]["replicas"] == 2
    assert {"--pool", "prefork"} <= set(OURS["act"]["command"])


def test_workers_together_consume_every_usual_queue() -> None:
    queues = [queue for service in OURS.values() for queue in queues_of(service["command"])]

    assert sorted(DEFAULT) == sorted(queues)


@pytest.mark.parametrize("name", OURS)
def test_no_service_is_privileged_and_all_stop_in_peace(name: str) -> None:
    service = OURS[name]

    assert service["cap_drop"] == ["ALL"]
    assert service["read_only"] is True
    assert service["init"] is True
    assert service["restart"] == "always"
    assert not {"privileged", "network_mode", "pid", "cap_add"} & set(service)
    assert seconds(service["stop_grace_period"]) >= LEAST_GRACE[kind_of(service["command"])]


@pytest.mark.parametrize("name", OURS)
def test_services_have_settings_that_exist_and_each_its_own_user_of_redis(name: str) -> None:
    environment, secrets = OURS[name]["environment"], OURS[name]["secrets"]
    user = "worker" if name == "act" else name

    assert set(environment) <= VARIABLES
    assert not any("redis://" in str(value) for value in environment.values())
    assert environment["BOYD_REDIS_URL_FILE"] == "/run/secrets/redis-url"
    assert environment["BOYD_AUDIT_KEY_FILE"] == "/run/secrets/audit-key"
    assert secrets[:2] == [{"source": f"redis-url-{user}", "target": "redis-url"}, "audit-key"]


@pytest.mark.parametrize("name", OURS)
def test_only_workers_and_the_api_have_the_secret_of_approvals(name: str) -> None:
    signs = name in ("worker", "act", "api")

    assert ("approval-secret" in OURS[name]["secrets"]) == signs
    assert ("BOYD_APPROVAL_SECRET_FILE" in OURS[name]["environment"]) == signs


@pytest.mark.parametrize("name", OURS)
def test_only_the_archive_and_the_api_have_its_database(name: str) -> None:
    assert ("BOYD_ARCHIVE_URL" in OURS[name]["environment"]) == (name in ("archive", "api"))


def test_nothing_listens_outside_of_the_machine() -> None:
    ports = [port for service in COMPOSE["services"].values() for port in service.get("ports", ())]

    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_the_api_is_asked_whether_it_lives() -> None:
    assert "http://127.0.0.1:8700/healthz" in OURS["api"]["healthcheck"]["test"][-1]
    assert OURS["api"]["command"][-1] == "8700"


def test_redis_keeps_everything_and_throws_nothing_out() -> None:
    redis = COMPOSE["services"]["redis"]
    lines = (DEPLOY / "redis" / "redis.conf").read_text("utf-8").splitlines()
    (mounted,) = [v for v in redis["volumes"] if v.startswith("./deploy/redis/redis.conf:")]

    assert redis["command"] == ["valkey-server", mounted.split(":")[1]]
    assert "appendonly yes" in lines
    assert "maxmemory-policy noeviction" in lines
    assert any(line.startswith("maxmemory ") for line in lines)
    assert "aclfile /run/secrets/users.acl" in lines
    assert "redis:/data" in redis["volumes"]
    assert redis["healthcheck"]["test"][0] == "CMD-SHELL"


def test_volumes_and_secrets_of_the_compose_file_exist() -> None:
    for service in COMPOSE["services"].values():
        for volume in service.get("volumes", ()):
            source = re.sub(r"\$\{\w+:-(.*?)\}", r"\1", volume).split(":")[0]
            assert source in COMPOSE["volumes"] or (ROOT / source).exists(), volume
        names = [s["source"] if isinstance(s, dict) else s for s in service.get("secrets", ())]
        assert set(names) <= set(COMPOSE["secrets"])
    assert "secrets/" in (DEPLOY / ".gitignore").read_text("utf-8").splitlines()


def test_the_agent_that_compose_runs_loads() -> None:
    assert agent_from_file(DEPLOY / "agent" / "agent.toml").settings.mode == "continuous"


# Redis and its users; tests/integration/test_acl.py shows that they suffice


def users() -> dict[str, list[str]]:
    lines = (DEPLOY / "redis" / "users.acl").read_text("utf-8").splitlines()
    return {words[1]: words[2:] for words in map(str.split, lines)}


@pytest.mark.parametrize("name", ["worker", "beat", "api"])
def test_users_who_run_scripts_may_run_every_command_in_them(name: str) -> None:
    text = "".join(source_of(name).text for name in NAMES)
    called = {f"+{command.lower()}" for command in re.findall(r"redis\.p?call\('(\w+)'", text)}

    assert len(called) > 20
    assert called <= set(users()[name])


def test_users_begin_with_nothing_and_get_no_category_and_no_channel() -> None:
    rules_of = users()

    assert rules_of.pop("default")[0] == "off"
    assert "+@all" in rules_of.pop("admin")
    for name, rules in rules_of.items():
        assert rules[:3] == ["on", f"#{name.upper()}", "resetchannels"]
        assert "-@all" in rules
        assert not [rule for rule in rules if rule.startswith(("+@", "&", ">", "nopass"))]
        assert len(set(rules)) == len(rules)


def test_the_default_user_that_nobody_can_be_may_replay_the_append_only_file() -> None:
    # Redis 7.0.15, for one, checks each transaction of the file against the rules of this user:
    # without them it starts with what was written by single commands only, and logs that it did.
    assert users()["default"] == ["off", "~*", "&*", "+@all"]


def make_secrets(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = DEPLOY / "redis" / "make-secrets"
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=False)


def test_secrets_are_made_once_for_what_compose_mounts(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "secrets"
    first = make_secrets("rediss://redis.example:6380/0", str(folder))
    texts = {path.name: path.read_text("utf-8").strip() for path in folder.iterdir()}
    again = make_secrets("redis://redis:6379/0", str(folder))

    assert first.returncode == 0, first.stderr
    assert folder.stat().st_mode & 0o777 == 0o700
    for secret in COMPOSE["secrets"].values():
        assert Path(secret["file"]).parent == Path("deploy/secrets")
        assert texts[Path(secret["file"]).name]
    for name, rules in [line.split(" ", 2)[1:] for line in texts["users.acl"].splitlines()[1:]]:
        url = texts.get(f"redis-url-{name}", f"rediss://{name}:{texts['redis-password-probe']}@")
        user, _, password = url.partition("://")[2].partition("@")[0].partition(":")
        assert user == name
        assert f" #{sha256(password.encode()).hexdigest()} " in f" {rules} "
        assert url.startswith("rediss://")
    assert len(texts["audit-key"]) >= 16
    assert len(texts["approval-secret"]) >= 32
    assert again.returncode == 1
    assert texts == {path.name: path.read_text("utf-8").strip() for path in folder.iterdir()}


@pytest.mark.parametrize(
    ("address", "users"),
    [
        ("redis://redis:6379/0", set()),
        ("cluster://one:6379,two:6379", {"replica"}),
        ("sentinel://one:26379,two:26379/boyd/0?ssl=true", {"replica", "sentinel"}),
    ],
)
def test_servers_that_copy_from_each_other_have_users_of_their_own(
    address: str, users: set[str], tmp_path: Path
) -> None:
    secrets = tmp_path / "secrets"
    assert make_secrets(address, str(secrets)).returncode == 0

    lines = (secrets / "users.acl").read_text("utf-8").splitlines()
    rules = {line.split()[1]: line.split()[3:] for line in lines}
    scheme, _, rest = address.partition("://")
    assert rules.keys() & {"replica", "sentinel"} == users
    for name in users:
        password = (secrets / f"redis-password-{name}").read_text("utf-8").strip()
        assert rules[name][0] == f"#{sha256(password.encode()).hexdigest()}"
        assert not [rule for rule in rules[name] if rule.startswith(("~", "+@"))]
    url = (secrets / "redis-url-worker").read_text("utf-8").strip()
    assert re.fullmatch(rf"{scheme}://worker:[0-9a-f]{{64}}@{re.escape(rest)}", url)


@pytest.mark.parametrize(
    ("address", "database"),
    [
        ("redis://redis:6379/2", "2"),
        ("redis://redis:6379", "0"),
        ("rediss://redis:6379/1?ssl_ca_certs=/etc/boyd/authority.pem", "1"),
        ("sentinel://one:26379,two:26379/boyd", "0"),
        ("sentinel://one:26379,two:26379/boyd/3", "3"),
    ],
)
def test_the_tools_of_celery_may_use_the_channels_of_the_database(
    address: str, database: str, tmp_path: Path
) -> None:
    secrets = tmp_path / "secrets"
    assert make_secrets(address, str(secrets)).returncode == 0
    subprocess.run([DEPLOY / "redis" / "allow-celery-tools", secrets], check=True)

    rules = (secrets / "users.acl").read_text("utf-8").split()
    events = f"&/{database}.celeryev/*"
    assert {rule for rule in rules if "celeryev/" in rule} == {events}
    assert {rule for rule in rules if "/" in rule} == {events, f"&/{database}.celery.pidbox"}


@pytest.mark.parametrize(
    "address",
    ["redis", "http://redis", "redis://user:word@redis", "redis://", "sentinel://one:26379"],
)
def test_no_secrets_are_made_for_an_address_that_is_none(address: str, tmp_path: Path) -> None:
    assert make_secrets(address, str(tmp_path / "secrets")).returncode == 2
    assert not (tmp_path / "secrets").exists()


# The image


def dockerfile() -> list[tuple[str, str]]:
    text = (DEPLOY / "Dockerfile").read_text("utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(line.split()[0], line.partition(" ")[2].strip()) for line in lines]


@pytest.mark.parametrize(
    "path",
    [
        "deploy/helm/boyd/values.yaml",
        "deploy/kubernetes/components/ingress/ingress.yaml",
        "docs/deployment.md",
    ],
)
def test_proxies_let_through_the_largest_message_that_the_api_takes(path: str) -> None:
    text = (ROOT / path).read_text("utf-8")
    matches = re.findall(r"(?:proxy-body-size:|client_max_body_size) (\d+)m", text)

    assert [int(size) * 1_048_576 for size in matches] == [IntakeSettings().max_body]


def test_the_proxy_of_the_guide_tells_the_name_that_the_browser_has_asked_for() -> None:
    [block] = re.findall(
        r"```nginx\n(.+?)```", (ROOT / "docs/deployment.md").read_text(), re.DOTALL
    )

    assert "proxy_set_header Host $http_host;" in block


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
    for value in installs:
        for command in value.split("&&"):
            if "pip install" in command:
                assert "--require-hashes" in command or "--no-deps" in command
    assert any(step == "ENV" and "PIP_NO_CACHE_DIR=1" in value for step, value in steps)


@pytest.mark.parametrize(
    "name", ["requirements.txt", "embedded-requirements.txt", "build-requirements.txt"]
)
def test_requirements_have_hashes_and_tested_versions(name: str) -> None:
    text = (DEPLOY / name).read_text("utf-8").replace("\\\n", "")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    pinned = {line.split(" ")[0] for line in lines}
    tested = (ROOT / "constraints.txt").read_text("utf-8").lower().replace("_", "-").splitlines()
    # Only these are for systems that the tests do not run on.
    elsewhere = re.compile(r"(?:os_name|sys_platform) == '(?:nt|win32|emscripten)'")
    others = {line.split(" ")[0] for line in lines if elsewhere.search(line)}

    assert all("--hash=sha256:" in line for line in lines)
    assert {
        package for package in pinned - others if package.replace("_", "-") not in tested
    } == set()


def test_the_image_has_all_that_boyd_depends_on() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    requirements = [*project["dependencies"], *project["optional-dependencies"]["goals"]]
    pinned = (DEPLOY / "requirements.txt").read_text("utf-8")
    names = {line.split("==")[0] for line in pinned.splitlines() if "==" in line}

    assert {re.split(r"[\[<>=]", requirement)[0] for requirement in requirements} <= names


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


# systemd


def unit(path: Path) -> dict[str, list[str]]:
    """The settings of a unit; each may come several times."""
    values: dict[str, list[str]] = defaultdict(list)
    for line in settings_of(path.read_text("utf-8")):
        if not line.startswith("["):
            name, _, value = line.partition("=")
            values[name].append(value)
    return values


def test_there_is_a_unit_for_every_process() -> None:
    started = [shlex.split(unit(path)["ExecStart"][0])[1:] for path in UNITS]
    queues = [queue for arguments in started for queue in queues_of(arguments)]

    assert [path.stem.removeprefix("boyd-") for path in UNITS] == [
        *("act", "api", "archive", "beat", "traces", "worker")
    ]
    assert sorted(queues) == sorted(DEFAULT)


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_every_unit_starts_a_command_that_exists_as_a_user_of_its_own(path: Path) -> None:
    service = unit(path)
    (line,) = service["ExecStart"]
    program, *arguments = shlex.split(line)

    assert program == "/opt/boyd/bin/boyd"
    assert parses(arguments)
    assert service["User"] == ["boyd"]
    assert service["EnvironmentFile"] == ["/etc/boyd/boyd.env", "-/etc/boyd/%p.env"]


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_every_unit_is_restarted_for_ever_and_stops_in_peace(path: Path) -> None:
    service = unit(path)
    arguments = shlex.split(service["ExecStart"][0])[1:]

    assert service["Restart"] == ["always"]
    assert service["StartLimitIntervalSec"] == ["0"]
    assert service["KillMode"] == ["mixed"]
    assert service["KillSignal"] == ["SIGTERM"]
    assert int(service["TimeoutStopSec"][0]) >= LEAST_GRACE[kind_of(arguments)]
    assert service["NoNewPrivileges"] == ["yes"]
    # The units share a user: one that stops would take away what others use.
    assert "RemoveIPC" not in service


def test_the_example_of_an_environment_file_sets_what_exists() -> None:
    lines = settings_of((DEPLOY / "boyd.env.example").read_text("utf-8"))
    names = [line.partition("=")[0] for line in lines]

    assert names
    assert set(names) <= VARIABLES
    assert "BOYD_ARCHIVE_URL" not in names, "workers do not need it, and it may hold a password"


# The guide


def test_the_guide_lists_every_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    table = re.search(r"^\| extra \|.*?\n\n", GUIDE, re.MULTILINE | re.DOTALL)
    assert table
    listed = re.findall(r"^\| `(\w+)`", table[0], re.MULTILINE)

    # `boyd up` and the tests of plugins belong on no host of a deployment.
    assert listed == sorted(project["optional-dependencies"].keys() - {"embedded", "testing"})


def commands_of_the_guide() -> Iterator[str]:
    for block in re.findall(r"^```sh\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            match = re.search(r"(?:run --rm api|exec api boyd|-- boyd|bin/boyd) (.*)", line)
            if match:
                yield match[1]


@pytest.mark.parametrize("line", list(commands_of_the_guide()))
def test_every_command_of_the_guide_exists_with_its_options(line: str) -> None:
    assert parses(shlex.split(line, comments=True))


def test_the_guide_and_compose_tell_how_the_first_key_is_made() -> None:
    text = (ROOT / "docker-compose.yml").read_text("utf-8")
    (line,) = re.findall(r"docker compose run --rm api (keys .*)", text)

    assert parses(line.split())
    assert sum("keys create" in line for line in commands_of_the_guide()) >= 2
