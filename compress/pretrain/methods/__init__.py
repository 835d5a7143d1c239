"""What a model learns from texts alone: masked words, and replaced tokens."""
