"""Tensor functions that several losses share."""
