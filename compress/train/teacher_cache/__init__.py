"""The teacher's outputs, cached on disk between epochs."""
