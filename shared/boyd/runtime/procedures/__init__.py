"""Runs procedures: actions that are composed of actions."""
