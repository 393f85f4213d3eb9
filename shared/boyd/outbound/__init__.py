"""Requests to addresses that clients name: checked, bounded, signed."""

from boyd.models import Delivery
from boyd.outbound.callback import DELAYS, CallbackSender, retry_delay

__all__ = ["DELAYS", "CallbackSender", "Delivery", "retry_delay"]
