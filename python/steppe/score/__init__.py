"""Scores predictions on measured serving points and measured start-ups; nothing here is fitted to either."""
