"""`boyd completion`: the script that lets a shell complete commands, options, ids and names."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from boyd.cli import output
from boyd.cli.group import boyd

#: For bash, which takes a colon for the end of a word: that of click completes no `plugin:action`.
_BASH = r"""_boyd_completion() {
    local line="${COMP_LINE:0:COMP_POINT}" word="" prefix="" type value
    local -a words
    read -ra words <<< "$line"
    local number=${#words[@]}
    if [[ $line != *[[:space:]] ]]; then
        number=$((number - 1))
        word="${words[number]}"
    fi
    [[ $COMP_WORDBREAKS != *:* ]] || prefix="${word%"${word##*:}"}"
    COMPREPLY=()
    while IFS=, read -r type value; do
        case $type in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            plain) COMPREPLY+=("${value#"$prefix"}") ;;
        esac
    done < <(COMP_WORDS="$line" COMP_CWORD=$number _BOYD_COMPLETE=bash_complete "$1")
}

complete -o nosort -F _boyd_completion boyd
"""


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print what makes a shell complete `boyd`.

    For bash: `source <(boyd completion bash)`, in ~/.bashrc for all shells to come.
    """
    if shell == "bash":
        output.say(_BASH.rstrip())
        return
    kind = get_completion_class(shell)
    assert kind is not None, "click knows these shells"
    output.say(kind(boyd, {}, "boyd", "_BOYD_COMPLETE").source())
