"""Tensor functions that the losses share."""
