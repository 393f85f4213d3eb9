from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boyd.plugins.shell.command_line import read
from boyd.plugins.shell.policy import MAX_COMMAND, Policy
from costs import MOST, growth

ALLOWED = Policy(allow=["git status", "ls", "cat", "cd", "sudo -n systemctl status"])


def uncovering(text: str) -> str | None:
    return ALLOWED.judge(text).uncovered


@pytest.mark.parametrize(
    "text",
    [
        "ls",
        "ls -la /tmp",
        "  ls  ",
        "git status --short",
        "git  \t status",
        "ls; git status",
        "ls;",
        "ls && git status || cat x",
        "ls &&\n\n git status",
        "ls | cat",
        "ls |\n cat",
        "ls\ngit status\n",
        "# what is there?\nls # all of it",
        "cat x#y",
        "'ls' \"-l\"",
        "l\\s",
        "ls \\\n -l",
        "ls *.txt ~ {a,b} [ab] ?",
        'cat "$HOME/x" ${HOME} $USER',
        "cat 'it; rm -rf $(x) `y` > z'",
        "cat \"it; rm > x & y\" '&'",
        "ls 2>/dev/null",
        "ls > /dev/null 2>&1",
        "ls &>/dev/null; ls",
        "2>/dev/null ls",
        "cat < /dev/null",
        "cd /tmp && ls",
        "sudo -n systemctl status nginx",
    ],
)
def test_a_line_is_covered_if_each_of_its_commands_begins_with_allowed_words(text: str) -> None:
    assert uncovering(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "rm x",
        "git",
        "git push",
        "git -c a=b status",
        "lsof",
        "/bin/ls",
        "./ls",
        "ls; rm x",
        "ls && rm x",
        "ls || rm x",
        "ls | rm x",
        "ls\nrm x",
        "ls & rm x",
        "ls &",
        "ls |& cat",
        "(ls)",
        "{ ls; }",
        "! ls",
        "ls $(rm x)",
        'ls "$(rm x)"',
        "ls `rm x`",
        'ls "`rm x`"',
        "ls <(rm x)",
        "ls > x",
        "ls >> x",
        "ls>x",
        "ls 2> x",
        "ls &> x",
        "ls >| x",
        "cat < x",
        "cat <> x",
        "cat <<< x",
        "cat <<EOF\nrm x\nEOF",
        "ls > /dev/nullx",
        "ls > /dev/null/../x",
        "ls > /dev/null\\x",
        "ls >&3",
        "99999999999999999999>/dev/null ls",
        "²>/dev/null ls",
        "2&>/dev/null ls",
        "'2'>/dev/null ls",
        "$X ls",
        "$X",
        "l$X",
        "git $X",
        "git stat*",
        "git {status,push}",
        "g?t status",
        "~/ls",
        "PATH=/tmp ls",
        "A=1",
        "A[0]=1 ls",
        "A+=1 ls",
        "ls ${X:=$(rm x)}",
        "ls ${X@P}",
        "ls $((a[1]))",
        "ls $[1]",
        "ls $'a'",
        'ls $"a"',
        "$'\\162\\155' x",
        "if ls; then ls; fi",
        "for x in a; do ls; done",
        "ls() { rm x; }",
        "function ls { rm x; }",
        "time ls",
        "env ls",
        "exec ls",
        "eval ls",
        "command ls",
        "sudo systemctl -n status",
        "sudo -n systemctl restart nginx",
        "ls 'x",
        'ls "x',
        "ls \\",
        "ls (",
        "ls )",
        "ls ;; ls",
        "; ls",
        "| ls",
        "ls |",
        "ls &&",
        "ls\r",
        "ls \x1b",
        "ls\xa0x",
        "[[ -v 'a[$(rm x)]' ]]",
        "((a[$(rm x)]))",
        "'A=1' ls",
        "'' ls",
    ],
)
def test_a_line_beyond_the_allowed_commands_needs_approval(text: str) -> None:
    verdict = ALLOWED.judge(text)
    assert verdict.uncovered or verdict.refused


def test_without_a_list_nothing_is_covered() -> None:
    assert Policy().judge("ls").uncovered == "`ls` is not allowed"


def test_an_uncovered_line_has_a_reason() -> None:
    assert uncovering("ls; rm -rf x") == "`rm -rf x` is not allowed"
    assert uncovering("ls > x") == "it has a redirection"
    assert uncovering("ls $(x)") == "it has a command substitution"
    assert uncovering("ls &") == "it has a command in the background"


@pytest.mark.parametrize("text", ["", "  \n\t ", "# nothing", "\n # a\n# b\n"])
def test_an_empty_command_is_refused(text: str) -> None:
    assert ALLOWED.judge(text).refused == "The command is empty"


def test_a_command_too_long_or_with_a_null_byte_is_refused() -> None:
    assert ALLOWED.judge("ls " + "x" * MAX_COMMAND).refused
    assert ALLOWED.judge("ls " + "x" * (MAX_COMMAND - 3)).refused is None
    assert ALLOWED.judge("ls a\0b").refused


@pytest.mark.parametrize(
    "text",
    [
        "rm -rf /",
        "rm x",
        "/bin/rm x",
        "ls; rm x",
        "A=1 rm x",
        "sudo rm x",
        "sudo -u root env A=1 nohup timeout 5 rm x",
        "ls | xargs -n1 rm",
        "(rm x)",
        "echo $(rm x)",
        'echo "`rm x`"',
        "bash -c 'rm x'",
        "eval rm x",
        "trap 'rm x' EXIT",
        "trap -- 'rm x' EXIT",
        "$'\\x72\\x6d' x",
        "$'\\162m' x",
        "bash <<EOF\nrm x\nEOF",
        "if true; then rm x; fi",
        "for x in a; do rm $x; done",
        "r\\m x",
        "'rm' x",
        "case x in x) rm y;; esac",
        "f() { rm x; }; f",
        "ls 'x; rm x",
        "git push --force",
        "git -C repo push origin --force",
        "git -c a=b push origin main --force",
    ],
)
def test_a_denied_command_is_refused_wherever_it_hides_and_although_it_is_allowed(
    text: str,
) -> None:
    policy = Policy(allow=["rm", "git", "ls"], deny=["rm", "git push --force"])
    assert policy.judge(text).denied


@pytest.mark.parametrize("text", ["ls rm", "echo 'rm x'", "git push", "rmdir x", "cat --rm"])
def test_a_line_that_resembles_a_denied_command_is_not_refused(text: str) -> None:
    assert not Policy(deny=["rm", "git push --force"]).judge(text).refused


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ls; rm",
        "ls > x",
        "ls *",
        "$X",
        "A=1 ls",
        "eval",
        "printf",
        "test -f",
        "exec ls",
        "sudo",
        "sudo -n",
        "env",
        "env A=1",
        "timeout",
        "timeout 5",
        "nohup",
        "xargs",
        "time",
        "bash",
        "sudo -n bash",
        "bash -x",
        "bash -s deploy",
        "bash -o errexit",
        "sh -",
        "sh -c",
        "sh /dev/stdin",
        "timeout 5 bash --",
        "su app",
        "if",
        "!",
    ],
)
def test_an_entry_that_would_allow_anything_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"cannot be allowed|not the start"):
        Policy(allow=[text])


def test_a_wrapper_with_its_program_can_be_allowed() -> None:
    policy = Policy(allow=["sudo -n ls", "timeout 5 ls"])
    assert policy.judge("timeout 5 ls -l; sudo -n ls").uncovered is None


def test_nesting_without_an_end_is_not_followed() -> None:
    assert ALLOWED.judge("echo " + "$(echo " * 2000).uncovered
    assert ALLOWED.judge("(" * 20_000).uncovered


@pytest.mark.parametrize(
    "piece", ["x", "! ", "sudo ", "rm ", "$(", "`", "<<A\nA\n", "(", '"$(', "x;", "bash -c "]
)
@pytest.mark.long
def test_the_longest_line_is_judged_at_once(piece: str) -> None:
    policy = Policy(allow=["ls"], deny=["rm never there"])
    most = (MAX_COMMAND - 10) // len(piece)
    assert growth(policy.judge, lambda size: piece * size, most) < MOST


@given(st.text(alphabet="ab 'rm\"\\$`(){}<>;|&#\n=*EOF-", max_size=60))
def test_any_text_can_be_read_and_judged(text: str) -> None:
    policy = Policy(allow=["a", "b"], deny=["rm"])
    verdict = policy.judge(text)
    assert verdict == policy.judge(text)
    if read(text).strange:
        assert verdict.refused or verdict.uncovered


@pytest.mark.parametrize(
    "shell",
    ["sh", "bash -x", "bash -s a", "sh -", "/bin/sh", "env A=1 sh", "sudo -n sh", "nice sh"],
)
def test_a_shell_that_reads_its_commands_from_a_pipe_always_takes_an_approval(shell: str) -> None:
    verdict = Policy(["echo", "cat", "bash deploy.sh"], ["canary"]).judge(f"echo canary | {shell}")

    assert verdict.refused is None
    assert verdict.uncovered is not None


@pytest.mark.parametrize("text", ["bash deploy.sh", "bash -x deploy.sh", "sh -o posix a.sh"])
def test_a_shell_that_is_given_a_file_can_be_allowed(text: str) -> None:
    assert Policy([text]).judge(f"{text} now").uncovered is None
