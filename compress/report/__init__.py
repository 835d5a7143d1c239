"""A run's facts, what they mean, and how they are shown."""
