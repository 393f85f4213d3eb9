"""Slack: a message for each approval with buttons, and the answers that people give there."""
