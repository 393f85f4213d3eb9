"""Earned autonomy: offers to let actions run alone, and cases that wait for comparison."""
