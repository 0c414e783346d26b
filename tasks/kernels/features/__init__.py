"""What can be said of a kernel without a clock: from its source, its compiler, a count of its work, and models."""
