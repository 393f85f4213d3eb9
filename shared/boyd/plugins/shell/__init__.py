"""Runs command lines that a model or a person writes, in bash, behind the approval gate."""

from boyd.plugins.shell.plugin import CommandParams, Shell
from boyd.plugins.shell.policy import Policy, PolicyVerdict

__all__ = ["CommandParams", "Policy", "PolicyVerdict", "Shell"]
