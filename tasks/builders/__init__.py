"""Ways to make tasks."""
