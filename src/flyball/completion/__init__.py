"""Completion: the evidence a run needs before it may end as complete."""
