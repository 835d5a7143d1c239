"""Faster training steps; the only package that uses private APIs of torch and transformers."""
