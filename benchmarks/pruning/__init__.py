"""What pruning costs and gains: scores against measured speed for criteria, goals and dropped layers."""
