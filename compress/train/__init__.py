"""Training: one loop, and the two steps that use it, from folders and from models in memory."""
