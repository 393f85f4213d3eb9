"""Observers and actions that are programs in any language: the plugin `command`."""
