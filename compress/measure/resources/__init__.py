"""Size, operations, memory and energy of a model."""
