"""Every message of a log is one line, from any library."""

from __future__ import annotations

import json
import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Literal

import click
import pytest
from click.testing import CliRunner

from boyd.settings.logs import clean_prints, keep_logging, setup_logging
from boyd.text.redaction import register
from boyd_worker import agent_host, beat, worker, worker_commands

Style = Literal["text", "json"]
STYLES: list[Style] = ["text", "json"]
CELERY = logging.getLogger("celery.worker.consumer.consumer")


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    """Leave logging and warnings to others as they were."""
    root = logging.getLogger()
    handlers, level, format_ = root.handlers[:], root.level, warnings.formatwarning
    ours = logging.getLogger("boyd").level
    yield
    logging.captureWarnings(False)
    warnings.formatwarning = format_
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.getLogger("boyd").setLevel(ours)


@pytest.mark.parametrize("style", STYLES)
def test_a_message_of_several_lines_is_one_line(
    style: Style, capsys: pytest.CaptureFixture[str]
) -> None:
    setup_logging("info", style)
    detail = "Trying again in 3.00 seconds... (6/None)"
    CELERY.error("consumer: Cannot connect to %s: %s.\n%s\n", "redis://h:1/0", "refused", detail)
    [line] = capsys.readouterr().err.splitlines()
    expected = "consumer: Cannot connect to redis://h:1/0: refused. trying again in 3 s (attempt 6)"
    assert expected == (json.loads(line)["message"] if style == "json" else line[21:])


@pytest.mark.parametrize("style", STYLES)
def test_no_text_forges_a_line_or_moves_the_cursor(
    style: Style, capsys: pytest.CaptureFixture[str]
) -> None:
    setup_logging("info", style)
    text = "gone\x1b[2J\u202e\n12:00:00.000 info    all is well\u2028\x9b1A"
    try:
        raise RuntimeError(text)
    except RuntimeError:
        CELERY.exception("it is %s", text)
    lines = capsys.readouterr().err.splitlines()

    assert all(line.isprintable() for line in lines)
    assert [line for line in lines if not line.startswith("  ")] == lines[:1]


@pytest.mark.parametrize("logger", ["boyd.worker", "celery.worker.consumer.consumer"])
def test_it_goes_on_after_a_plugin_has_configured_its_own(
    logger: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = logging.getLogger(logger)
    setup_logging("info", "text")
    monkeypatch.setattr(log, "disabled", True)  # as `dictConfig` leaves all that exist
    logging.disable()
    log.error("unheard")
    keep_logging()
    log.error("heard")

    assert [line[21:] for line in capsys.readouterr().err.splitlines()] == ["heard"]


@pytest.mark.parametrize("style", STYLES)
def test_a_warning_of_a_library_is_a_line_of_the_log(
    style: Style, capsys: pytest.CaptureFixture[str]
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        setup_logging("info", style)
        warnings.warn("this is\n  not a good idea", UserWarning, stacklevel=1)
    [line] = capsys.readouterr().err.splitlines()
    expected = "UserWarning: this is not a good idea"
    assert expected == (json.loads(line)["message"] if style == "json" else line[21:])


def test_output_of_a_plugin_shows_no_secret(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("boyd.text.redaction._registered", set())
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, getattr(sys, name))
    register("correct horse battery")
    clean_prints()
    sys.stdout.close()  # as one plugin may do, in the process of others
    print("the secret is", "correct horse battery")
    sys.stderr.writelines(["redis://:hunter2@host\n"])

    output = capsys.readouterr()
    assert output.out == "the secret is [redacted]\n"
    assert output.err == "redis://:[redacted]@host\n"


def test_a_plugin_that_prints_to_a_full_disk_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    full = Path("/dev/full").open("w", encoding="utf-8")  # noqa: SIM115 - closing it fails, too
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, full)
    clean_prints()
    print("restarted", flush=True)
    print("x" * 100_000)
    sys.stderr.close()
    with suppress(OSError):
        full.close()


@pytest.mark.parametrize("command", [worker_commands.worker, worker_commands.beat])
def test_processes_that_call_plugins_print_no_secret(
    command: click.Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(_: object) -> int:
        print("the secret is", "correct horse battery")
        return 0

    monkeypatch.setattr("boyd.text.redaction._registered", set())
    register("correct horse battery")
    monkeypatch.setattr(agent_host, "AgentHost", lambda *_: SimpleNamespace(agents=["a"]))
    for module, name in ((worker, "run_worker"), (beat, "run_beat")):
        monkeypatch.setattr(module, name, run)
    monkeypatch.setattr(worker_commands, "with_redis", lambda settings: settings)
    monkeypatch.setattr(worker_commands, "end", sys.exit)

    result = CliRunner().invoke(command, ["--agent", "a"], catch_exceptions=False)
    assert result.output == "the secret is [redacted]\n"
