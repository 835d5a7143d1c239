"""What else used the machine while a model was timed."""
