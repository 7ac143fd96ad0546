"""A cell's stream sent to real endpoints, and what they did with it, as a run that is measured (`prebleexp live`)."""
