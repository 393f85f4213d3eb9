"""Pure helpers for texts, names, times and limits."""
