"""Quantization-aware training: a model learns while it computes as in INT8."""
