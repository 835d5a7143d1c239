"""Distillation losses, one a file, named after the recipe key."""
