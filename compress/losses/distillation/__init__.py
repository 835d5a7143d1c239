"""Distillation losses, one per file, named after their recipe keys."""
