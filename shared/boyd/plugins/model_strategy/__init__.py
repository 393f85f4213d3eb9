"""Lets a model choose among the agent's actions."""

from boyd.plugins.model_strategy.plugin import ModelStrategy

__all__ = ["ModelStrategy"]
