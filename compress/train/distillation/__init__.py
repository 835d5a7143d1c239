"""Distillation: objective, layer maps, teachers, and the checks made before it starts."""
