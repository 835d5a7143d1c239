"""From model outputs to answers: spans, windows, thresholds, neighbours. Pure numpy."""
