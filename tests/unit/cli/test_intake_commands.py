"""`boyd intake` shows what a message becomes, and what would be refused."""

from __future__ import annotations

import hmac
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from boyd_cli.group import boyd

DATA = Path(__file__).parents[2] / "data" / "intake"
MESSAGE = DATA / "github" / "firing.json"
AGENT = 'id = "shop"\n[[intakes]]\nname = "github"\nauth = { secret = "gh" }\n'


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An agent file with an intake, whose secret is known here."""
    (tmp_path / "gh").write_text("a shared secret")
    monkeypatch.setenv("BOYD_INTAKE__SECRETS", str(tmp_path))
    path = tmp_path / "agent.toml"
    path.write_text(AGENT)
    return path


def intake(*words: object) -> Result:
    return CliRunner().invoke(boyd, ["intake", *map(str, words)])


def test_a_message_is_shown_as_observations() -> None:
    for words in ([MESSAGE], [MESSAGE, "--format", "github"]):
        result = intake("try", *words)
        assert result.exit_code == 0
        assert "1 observation" in result.output
        assert "github/Codertocat/Hello-World" in result.output
    [observation] = json.loads(intake("try", MESSAGE, "-o", "json").stdout)
    assert (observation["severity"], observation["data"]["status"]) == ("error", "firing")


def test_with_headers_the_sender_is_checked_as_the_api_would(agent: Path) -> None:
    signature = hmac.new(b"a shared secret", MESSAGE.read_bytes(), "sha256").hexdigest()
    header = f"X-Hub-Signature-256: sha256={signature}"
    good = intake("try", MESSAGE, "--agent", agent, "-H", header)
    assert (good.exit_code, "would be admitted (hmac)" in good.output) == (0, True)

    bad = intake("try", MESSAGE, "--agent", agent, "-H", header[:-1])
    assert (bad.exit_code, "would be refused" in bad.output) == (1, True)
    assert intake("try", MESSAGE, "-H", "no colon").exit_code == 2
    (agent.parent / "huge").write_bytes(b" " * 10_485_761)
    assert "longer than intake.max_body" in intake("try", agent.parent / "huge").stderr


def test_intake_try_refuses_bad_input_with_the_same_reason_as_the_api(tmp_path: Path) -> None:
    broken = tmp_path / "x.json"
    broken.write_text("{")
    for words, reason in (
        (["--format", "github"], "github: not JSON"),
        (["--format", "githup"], "did you mean 'github'?"),
    ):
        result = intake("try", broken, *words)
        assert (result.exit_code, reason in result.output) == (1, True)


def test_intake_try_says_what_a_file_lacks(tmp_path: Path) -> None:
    message = tmp_path / "saved.json"
    message.write_bytes(MESSAGE.read_bytes())
    for file, advice in (
        ("/dev/null", "/dev/null is empty"),
        (message, "names no format, so give --format"),
        (tmp_path, "Is a directory"),
    ):
        assert advice in intake("try", file).output


def test_the_list_has_formats_and_the_intakes_of_the_agent(agent: Path) -> None:
    rows = json.loads(intake("list", "--agent", agent, "-o", "json").stdout)
    rows_by_name = {row["name"]: (row["from"], row["auth"]) for row in rows}
    assert rows_by_name["github"] == ("agent", "hmac")
    assert rows_by_name["datadog"] == ("boyd", "key")
    assert rows_by_name["json"] == ("boyd", "key")
