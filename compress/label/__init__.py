"""Labels from a service: rows answered by a large model, as data that a recipe reads."""
