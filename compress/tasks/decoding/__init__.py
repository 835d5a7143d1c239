"""From model outputs to predictions: answer spans, window pooling, thresholds, nearest neighbours. Pure numpy."""
