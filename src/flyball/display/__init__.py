"""Results and events as people read them: the rows of a timeline, and HTML for notebooks."""
