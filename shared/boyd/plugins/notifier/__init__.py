"""The plugin `notifier`: it notifies groups of people of approvals, by mail, chat or webhook."""

from boyd.plugins.notifier.plugin import (
    Escalation,
    Notifier,
    QuietHours,
    Recipient,
    RecipientGroup,
)
from boyd.plugins.notifier.rota import Rota

__all__ = ["Escalation", "Notifier", "QuietHours", "Recipient", "RecipientGroup", "Rota"]
