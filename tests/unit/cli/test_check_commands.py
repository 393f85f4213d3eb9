"""Errors of `boyd check` about agent files with a slip in them."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from pydantic import ValidationError

from boyd.models import Observation
from boyd.phases.phase_context import describe
from boyd_cli.commands.check_commands import check

MODEL = '[llm]\nbase_url = "http://127.0.0.1:9/v1"\nmodel = "m"\n'
FOLDER = 'plugins_dir = "plugins"\n'
WEB = """
from boyd import Plugin, action


class Web(Plugin):
    id = "web"

    @action()
    def restart(self):
        "Restart it."
"""
BROKEN = """
from boyd import Plugin


class Broken(Plugin):
    id = "broken"

    def __init__(self, **options):
        raise ValueError("boo")
"""


def run_check(folder: Path, text: str, plugin: str = WEB) -> Result:
    (folder / "plugins").mkdir()
    (folder / "plugins" / "one.py").write_text(plugin)
    file = folder / "agent.toml"
    file.write_text(f'id = "a"\n{text}')
    return CliRunner().invoke(check, [str(file)])


IDLE = """
from boyd import Plugin


class Idle(Plugin):
    id = "idle"

    def look(self):
        return []
"""


def test_a_plugin_of_which_nothing_is_called_is_a_warning(tmp_path: Path) -> None:
    done = run_check(tmp_path, f'{FOLDER}[[plugins]]\nuse = "idle"\n', IDLE)

    assert done.exit_code == 0
    assert "plugin idle: has no component and no hook: is a decorator missing?" in done.stderr


@pytest.mark.parametrize("body", ["return 5", "raise RuntimeError('boo')"])
def test_misfits_that_fail_name_their_plugin(tmp_path: Path, body: str) -> None:
    plugin = f"{WEB}\n    def misfits(self, catalog):\n        {body}\n"
    done = run_check(tmp_path, f'{FOLDER}[[plugins]]\nuse = "web"\n', plugin)

    assert done.exit_code == 1
    assert "plugin 'web': its misfits cannot be told: " in done.stderr


def policy(pattern: str) -> str:
    rule = f'[[approvals.policies]]\nactions = ["{pattern}"]\nrequired = {{ min_approvals = 2 }}\n'
    return f'{FOLDER}{rule}[[plugins]]\nuse = "web"\n'


@pytest.mark.parametrize("pattern", ["web:restrat", "nope:*"])
def test_a_policy_for_no_action_is_a_warning(tmp_path: Path, pattern: str) -> None:
    done = run_check(tmp_path, policy(pattern))

    assert done.exit_code == 0
    assert f"warning: {tmp_path / 'agent.toml'}: approvals.policies.0.actions: " in done.stderr
    assert f"no action matches {pattern!r}" in done.stderr
    assert "web:restart" in done.stderr


@pytest.mark.parametrize("pattern", ["web:restart", "web:*", "*"])
def test_a_policy_for_some_action_is_fine(tmp_path: Path, pattern: str) -> None:
    done = run_check(tmp_path, policy(pattern))

    assert (done.exit_code, done.stderr) == (0, "")


def test_a_budget_of_no_action_is_a_warning(tmp_path: Path) -> None:
    budget = '[budgets]\n"web:restrat" = { limit = 1, window = 60 }\n'
    done = run_check(tmp_path, f'{FOLDER}{budget}[[plugins]]\nuse = "web"\n')

    assert done.exit_code == 0
    assert "budgets: no action has the id 'web:restrat'" in done.stderr
    assert "did you mean 'web:restart'?" in done.stderr


NUMBERS = [
    "loop_interval",
    "loop_offset",
    "history.max_age",
    "approvals.ttl",
    'budgets."a:b".window',
    'verification."a:b".repeat_after',
]


@pytest.mark.parametrize("value", ["inf", "nan", "1e300"])
@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_that_is_no_time_is_a_mistake_of_its_setting(
    tmp_path: Path, name: str, value: str
) -> None:
    done = run_check(tmp_path, f"{name} = {value}\n")

    assert done.exit_code == 1
    assert f"{name.replace(chr(34), '')}: Input should be " in done.stderr


def test_an_intake_in_a_format_that_is_not_installed_is_a_warning(tmp_path: Path) -> None:
    done = run_check(tmp_path, '[[intakes]]\nname = "mine"\nuse = "jsno"\n')

    assert done.exit_code == 0
    assert "no format 'jsno' is installed here; did you mean 'json'?" in done.stderr


LIMITED = """
schedule = "0 8 * * mon-fri"
timezone = "Europe/Vienna"
[[windows]]
name = "freezes"
freezes = "freezes.ics"
[[windows]]
actions = ["x:*"]
open = ["* 8-16 * * *"]
[autonomy."example:fan"]
when = 'decision.confidence > 0.5'
[autonomy."example:none"]
when = "true"
[[plugins]]
use = "example"
"""


def test_windows_and_conditions_are_shown_and_their_doubts_are_warnings(tmp_path: Path) -> None:
    result = run_check(tmp_path, LIMITED)

    assert result.exit_code == 0
    assert "agent a, manual, at 0 8 * * mon-fri (Europe/Vienna)" in result.output
    assert "alone when decision.confidence > 0.5, window freezes" in result.output
    for doubt in (
        "windows.1.actions: no action matches 'x:*', so it has no effect",
        "autonomy: no action has the id 'example:none', so it has no effect",
        f"change freezes: {tmp_path}/freezes.ics: No such file or directory",
    ):
        assert doubt in " ".join(result.output.split())


@pytest.mark.parametrize("plugin", ["investigation", "model-strategy"])
def test_a_plugin_that_needs_a_model_fails_without_one(tmp_path: Path, plugin: str) -> None:
    done = run_check(tmp_path, f'[[plugins]]\nuse = "{plugin}"\n')

    assert done.exit_code == 1
    assert f"plugin {plugin!r}: needs a model: add the table [llm]" in done.stderr


@pytest.mark.parametrize("plugin", ["investigation", "model-strategy"])
def test_a_plugin_that_needs_a_model_is_fine_with_one(tmp_path: Path, plugin: str) -> None:
    done = run_check(tmp_path, f'{MODEL}[[plugins]]\nuse = "{plugin}"\n')

    assert (done.exit_code, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("loop_intervall = 3\n", "loop_intervall: is not known; did you mean 'loop_interval'?"),
        (MODEL + 'modle = "x"\n', "llm.modle: is not known; did you mean 'model'?"),
        (
            MODEL + "limits.max_step = 3\n",
            "llm.limits.max_step: is not known; did you mean 'max_steps'?",
        ),
        (
            '[budgets]\n"web:restart" = { limt = 1, limit = 1, window = 60 }\n',
            "budgets.web:restart.limt: is not known; did you mean 'limit'?",
        ),
        (
            "[[approvals.policies]]\nrequired = { min_approval = 2 }\n",
            "required.min_approval: is not known; did you mean 'min_approvals'?",
        ),
        (
            '[[plugins]]\nuse = "web"\nopts = {}\n',
            "plugins.0.opts: is not known; did you mean 'options'?",
        ),
        (
            '[[plugins]]\nuse = "host-metrics"\noptions = { intervall = 3 }\n',
            "plugin 'host-metrics': intervall: is not known; did you mean 'interval'?",
        ),
        ("[history]\nzzz = 1\n", "history.zzz: is not known; known: max_age, max_count"),
    ],
)
def test_an_unknown_setting_is_reported_with_the_nearest_known_one(
    tmp_path: Path, text: str, message: str
) -> None:
    done = run_check(tmp_path, text)

    assert done.exit_code == 1
    assert message in done.stderr


@pytest.mark.parametrize(
    ("part", "error"),
    [
        ('{ start = "8" }', "windows.0.open.0.start: write hours and minutes, as 08:30"),
        ("{ end = 17 }", "windows.0.open.0.end: write hours and minutes, as 08:30"),
        ('{ days = "mon" }', "windows.0.open.0.days: is not known; did you mean 'weekdays'?"),
        (
            '"* *"',
            (
                "windows.0.open.0: '* *' is not a cron expression: "
                "it needs minute, hour, day of month, month and day of week"
            ),
        ),
    ],
)
def test_of_alternatives_the_error_of_the_closest_is_reported(
    tmp_path: Path, part: str, error: str
) -> None:
    done = run_check(tmp_path, f'[[windows]]\nname = "office"\nopen = [{part}]\n')

    assert done.exit_code == 1
    assert done.stderr.rstrip().endswith(f"agent.toml: {error}")


def test_a_plugin_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    done = run_check(tmp_path, f'{FOLDER}[[plugins]]\nuse = "broken"\n', BROKEN)

    assert done.exit_code == 1
    assert "plugin 'broken': cannot be created: one.py line 9: ValueError: boo" in done.stderr


def test_the_rule_for_agent_ids_is_stated_in_words(tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    file.write_text('id = "The Office"\n')
    done = CliRunner().invoke(check, [str(file)])

    assert "id: it must have 1 to 63 lower-case letters, digits, `.`, `_` and `-`" in done.stderr
    assert "[a-z" not in done.stderr


def test_a_plugin_that_needs_an_absent_action_fails_the_check(
    tmp_path: Path,
) -> None:
    tool = '[plugins.options.tools."goals:nope"]\nkeywords = ["x"]\n'
    done = run_check(tmp_path, f'{FOLDER}[[plugins]]\nuse = "goals"\n{tool}')

    assert done.exit_code == 1
    assert "plugin goals: tools.\"goals:nope\": the agent has no action 'goals:nope'" in done.stderr


WRONG = """
from boyd import Observation, Plugin

{module}
class Web(Plugin):
    id = "web"

    def __init__(self, **options):
        super().__init__(**options)
        {init}
"""


@pytest.mark.parametrize("where", ["module", "init"])
def test_pydantic_errors_of_plugins_are_shown_without_links(tmp_path: Path, where: str) -> None:
    text = WRONG.format(**{"module": "", "init": "", where: "Observation(source=1)"})
    done = run_check(tmp_path, f'{FOLDER}[[plugins]]\nuse = "web"\n', text)

    assert done.exit_code == 1
    assert "Observation: source: Input should be a valid string" in done.stderr
    assert "https://" not in done.stderr


def test_errors_of_plugins_are_described_without_links() -> None:
    with pytest.raises(ValidationError) as raised:
        Observation.model_validate({"source": 1, "type": "state", "data": {}})

    assert describe(raised.value) == (
        "ValidationError: Observation: source: Input should be a valid string"
    )


DECIDES = """
from boyd import Budget, Decision, Plugin, action, strategy
from boyd.models import Model


class Params(Model):
    keep_mb: float = 1.0


class Web(Plugin):
    id = "web"

    @strategy()
    def choose(self):
        "Choose."
        if not self:
            return Decision(action="no-op", rationale="calm", confidence=1.0)
        return Decision(action=ACTION, rationale="because", confidence=1.0)

    @action(target="keep_mb", budget=Budget(limit=1, window=60))
    def restart(self, params: Params):
        "Restart it."
"""


@pytest.mark.parametrize("action", ['"web:restrat"', 'f"{self.id}:restrat"'])
def test_a_decision_for_an_action_that_does_not_exist_is_a_warning(
    tmp_path: Path, action: str
) -> None:
    plugin = DECIDES.replace("ACTION", action)
    done = run_check(tmp_path, f'{FOLDER}[[plugins]]\nuse = "web"\n', plugin)

    assert done.exit_code == 0
    warning = "strategy web:choose: there is no action 'web:restrat'; did you mean 'web:restart'?"
    assert warning in done.stderr


@pytest.mark.parametrize("action", ['"web:restart"', 'f"{self.id}:restart"', "pick()"])
def test_a_decision_for_an_action_that_exists_or_is_computed_is_fine(
    tmp_path: Path, action: str
) -> None:
    plugin = DECIDES.replace("ACTION", action)
    done = run_check(tmp_path, f'{FOLDER}[[plugins]]\nuse = "web"\n', plugin)

    assert (done.exit_code, done.stderr) == (0, "")


def test_parameters_have_the_names_that_people_and_decisions_use(tmp_path: Path) -> None:
    plugin = DECIDES.replace("ACTION", '"web:restart"')
    done = run_check(tmp_path, f'{FOLDER}[[plugins]]\nuse = "web"\n', plugin)

    assert "params (keepMb)" in done.stdout
    assert "per keepMb" in done.stdout
    assert "keep_mb" not in done.stdout


@pytest.mark.parametrize(
    "where", ["[approvals]\nrequired = ", "[[approvals.policies]]\nrequired = "]
)
def test_a_policy_that_nobody_can_meet_is_refused(tmp_path: Path, where: str) -> None:
    required = '{ min_approvals = 2, principals = ["one", "one"] }'
    done = run_check(tmp_path, f'{FOLDER}{where}{required}\n[[plugins]]\nuse = "web"\n')

    assert done.exit_code == 1
    error = "required: it needs 2 approvals, but only 1 principal may approve"
    assert error in done.stderr


@pytest.mark.parametrize(
    "more", ['principals = ["one", "two"]', 'principals = ["one"], groups = ["ops"]']
)
def test_a_policy_that_somebody_can_meet_is_fine(tmp_path: Path, more: str) -> None:
    required = f"[approvals]\nrequired = {{ min_approvals = 2, {more} }}\n"
    done = run_check(tmp_path, f'{FOLDER}{required}[[plugins]]\nuse = "web"\n')

    assert (done.exit_code, done.stderr) == (0, "")


def test_a_sandbox_that_this_host_cannot_enforce_is_a_warning(tmp_path: Path) -> None:
    box = '[sandbox."web:restart"]\nuser = "no-such-user"\n[[plugins]]\nuse = "web"\n'
    done = run_check(tmp_path, FOLDER + box)

    assert done.exit_code == 0
    assert (
        "action web:restart would not run on this host: its sandbox cannot be enforced: "
        "no such user: 'no-such-user'"
    ) in done.stderr


def test_a_sandbox_of_no_action_is_a_warning(tmp_path: Path) -> None:
    box = '[sandbox."web:restrat"]\ncpu = 5\n[[plugins]]\nuse = "web"\n'

    assert "sandbox: no action has the id 'web:restrat'" in run_check(tmp_path, FOLDER + box).stderr


USES = f"""{FOLDER}
[[plugins]]
use = "web"
"""
EARNS = f"""{USES}
[autonomy."web:restart"]
mode = "earned"
"""
VERIFIED = f"""{WEB}
    @restart.verify(within=10, every=1)
    def _runs(self):
        return True
"""
ORIENTED = f"""{VERIFIED}
    @orienter()
    def judge(self):
        return SituationAssessment(source="web", findings=[], anomalies=[])
""".replace("import Plugin", "import Plugin, SituationAssessment, orienter")


@pytest.mark.parametrize(
    ("text", "code", "warns"),
    [(EARNS, VERIFIED, True), (EARNS, ORIENTED, False), (USES, VERIFIED, False)],
)
def test_an_action_that_earns_without_anomalies_gets_a_warning(
    tmp_path: Path, text: str, code: str, warns: bool
) -> None:
    done = run_check(tmp_path, text, code)
    assert done.exit_code == 0
    doubt = "autonomy.web:restart: no plugin reports an anomaly"
    assert (doubt in done.output) is warns
