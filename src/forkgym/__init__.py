"""A Gymnasium of agentic coding environments whose sandboxes fork."""
