"""Requests to addresses that clients name: checked, bounded, signed."""

from boyd.models import Delivery
from boyd.outbound.callback import DELAYS, CallbackSender, retry_delay
from boyd.outbound.guarded_session import check_url

__all__ = ["DELAYS", "CallbackSender", "Delivery", "check_url", "retry_delay"]
