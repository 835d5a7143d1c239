"""The parts of the training loop: optimizer, schedule, checkpoints, processes."""
