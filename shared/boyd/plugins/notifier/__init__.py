"""The plugin `notifier`: it notifies groups of people of approvals, by mail, chat or webhook."""

from boyd.plugins.notifier.plugin import Notifier, QuietHours, Recipient, RecipientGroup

__all__ = ["Notifier", "QuietHours", "Recipient", "RecipientGroup"]
