"""`boyd prove` as people call it: its tables, exit statuses and errors, and what it publishes."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from boyd.agent import agent_from_file
from boyd.store import Store
from boyd.testing import Lab
from boyd_proof.proof_report import PublishedProof
from boyd_proof.prove_command import REPORT
from cli_kit import Cli
from harness import patient_client

pytestmark = [pytest.mark.real, pytest.mark.long]

AGENT = """
id = "shop"
plugins_dir = "plugins"

[[plugins]]
use = "shop"

[[plugins]]
use = "rules"
[[plugins.options.rules]]
name = "busy"
source = "shop"
min_severity = "info"
value = "${data.load}"
above = 50
action = "shop:restart"
"""
PLUGIN = """
from boyd import Context, EffectVerdict, Observation, Plugin, action, observer


class Shop(Plugin):
    id = "shop"

    @observer()
    def look(self, ctx: Context) -> list[Observation]:
        load = 80.0 if (ctx.iteration or 0) % 10 == 5 else 20.0
        return [Observation(source="shop", type="metric", data={"load": load})]

    @action()
    def restart(self) -> str:
        return "restarted"
"""
START = datetime(2026, 11, 1, tzinfo=UTC)
WEEKS = 4


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with an agent, and with four weeks of observations and labels."""
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "shop.py").write_text(PLUGIN)
    (tmp_path / "agent.toml").write_text(AGENT)
    (tmp_path / "changed.toml").write_text(AGENT.replace("above = 50", "above = 90"))
    hours = [START + timedelta(hours=hour) for hour in range(WEEKS * 7 * 24 + 1)]
    loads = [80 if at.hour == 5 else 60 if at.hour == 15 else 20 for at in hours]
    rows = [f"{at:%FT%TZ},shop,{load}" for at, load in zip(hours, loads, strict=True)]
    _write(tmp_path / "month.csv", "timestamp,source,load", rows)
    labels = [f"{at:%FT%TZ},{at + timedelta(hours=1):%FT%TZ}" for at in hours if at.hour == 5]
    _write(tmp_path / "labels.csv", "start,end", labels)
    return tmp_path


def _write(path: Path, header: str, rows: list[str]) -> None:
    path.write_text("\n".join([header, *rows]) + "\n")


@pytest.fixture
def cli(place: Path, redis_url: str) -> Cli:
    """`boyd` beside the agent."""
    return Cli(place, BOYD_REDIS_URL=redis_url)


def source(place: Path) -> list[str]:
    """The options for agent, observations and labels."""
    options = {"agent": "agent.toml", "observations": "month.csv", "labels": "labels.csv"}
    return [word for name, file in options.items() for word in (f"--{name}", str(place / file))]


def test_two_agents_are_side_by_side(cli: Cli, place: Path) -> None:
    report = cli.json("prove", *source(place), "--changed", str(place / "changed.toml"))
    present, changed = report["agents"]

    assert (present["name"], changed["name"]) == ("present", "changed")
    assert (present["scores"]["precision"], present["scores"]["recall"]) == (0.5, 1.0)
    assert present["scores"]["delayMedian"] == 0.0
    assert present["scores"]["falseAlarmsPerWeek"] == pytest.approx(7.0, abs=0.1)
    assert present["actions"] == [
        {"action": "shop:restart", "alone": 56, "asked": 0, "same": 0, "outcomes": {}}
    ]
    # It detects nothing, so that there is no precision.
    assert "precision" not in changed["scores"]
    assert (changed["scores"]["recall"], changed["scores"]["f1"]) == (0.0, 0.0)
    assert report["series"][0]["name"] == "shop load"


def test_a_sweep_recommends_a_value_that_is_right(cli: Cli, place: Path) -> None:
    options = ("prove", *source(place), "--sweep", "rules:busy.above=40..85:15")
    report = cli.json(*options)
    table = cli(*options)

    assert [point["whole"]["f1"] for point in report["sweep"]["points"]] == pytest.approx(
        [2 / 3, 2 / 3, 1.0, 0.0]
    )
    best = report["sweep"]["recommendation"]
    assert (best["value"], best["low"], best["high"], best["present"]) == (70, 70, 70, 50)
    assert (best["chosenF1"], best["heldOutF1"]) == (1.0, 1.0)
    assert "Recommended: 70." in table
    # The same bytes each time.
    assert cli(*options) == table


def test_a_sweep_over_too_little_shows_its_values_and_fails(cli: Cli, place: Path) -> None:
    _write(place / "labels.csv", "start,end", [f"{START + timedelta(hours=5):%FT%TZ},"])
    done = cli.process("prove", *source(place), "--sweep", "rules:busy.above=40..85:15")

    assert done.returncode == 1, done.stderr
    assert "No value is recommended: 1 label counts" in done.stdout


@pytest.mark.parametrize(
    ("sweep", "status", "problem"),
    [
        ("rules:busy.above=1", 2, "is no sweep: write PLUGIN:OPTION=LOW..HIGH"),
        ("rules:busy.above=2..1", 2, "the lower value comes first"),
        ("rules:busy.above=0..9:0", 2, "the step 0 is not above 0"),
        ("rules:busy.above=0..9:0.001", 2, "gives 9001 values"),
        ("rule:busy.above=1..2", 1, "has no plugin 'rule'; did you mean 'rules'?"),
        ("rules:bussy.above=1..2", 1, "has no option 'bussy'; did you mean 'busy'?"),
        ("rules:busy.abov=1..2", 1, "there is no 'abov'; did you mean 'above'?"),
        ("rules:busy.source=1..2", 1, "is 'shop', not a number"),
        ("rules:busy.confidence=0.5..1.5:0.5", 1, "confidence=1.5 is refused"),
    ],
)
def test_a_sweep_that_is_not_valid_says_what_to_do(
    cli: Cli, place: Path, sweep: str, status: int, problem: str
) -> None:
    done = cli.process("prove", *source(place), "--sweep", sweep)

    assert (done.returncode, problem in done.stderr) == (status, True), done.stderr


def test_options_that_exclude_each_other_are_refused(cli: Cli, place: Path) -> None:
    records = cli.process("prove", *source(place), "--records", str(place / "month.csv"))
    verified = cli.process("prove", *source(place)[:4], "--labels", "verified")
    missing = cli.process("prove", *source(place)[:4], "--labels", "nowhere.csv")
    folder = cli.process("prove", *source(place)[:4], "--labels", str(place))

    assert (records.returncode, verified.returncode, missing.returncode) == (2, 2, 2)
    assert "is a folder" in folder.stderr
    assert "exclude each other" in records.stderr
    assert "needs the verdicts in Redis and archive" in verified.stderr
    assert "there is no file 'nowhere.csv'" in missing.stderr


def test_recorded_iterations_are_compared_and_published(
    cli: Cli, place: Path, redis_url: str
) -> None:
    client = patient_client(redis_url)
    lab = Lab(agent_from_file(place / "agent.toml"), client=client)
    for _ in range(12):
        lab.run()
    agent, labels = str(place / "agent.toml"), str(place / "labels.csv")
    done = cli.process("prove", "--agent", agent, "--labels", labels, "--publish", "-o", "json")
    published = Store(client).agent("shop").latest_report(REPORT, PublishedProof).read()
    client.close()

    assert done.returncode == 0, done.stderr
    recorded, present = json.loads(done.stdout)["agents"]
    assert [agent["name"] for agent in (recorded, present)] == ["recorded", "present"]
    assert recorded["scores"] == present["scores"]
    assert recorded["actions"] == present["actions"]
    assert recorded["actions"][0]["outcomes"] == {"not verified": 1}
    assert published is not None
    assert published.report.iterations == 12


def test_too_many_unknown_iterations_fail(cli: Cli, place: Path) -> None:
    records = place / "records.jsonl"
    lab = Lab(agent_from_file(place / "agent.toml"))
    old = [lab.run().patched({"builds": [], "reads": []}) for _ in range(5)]
    records.write_text("".join(f"{record.to_json()}\n" for record in old))
    files = {"agent": place / "agent.toml", "records": records, "labels": place / "labels.csv"}
    options = [word for name, file in files.items() for word in (f"--{name}", str(file))]
    strict = cli.process("prove", *options)
    lenient = cli.process("prove", *options, "--cannot-tell", "100")

    assert (strict.returncode, lenient.returncode) == (6, 0), strict.stderr
    assert "fails: present cannot be told in 5 of 5 iterations, more than 1%" in strict.stderr
