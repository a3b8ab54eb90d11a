"""History: read, explain and replay stored runs."""
