"""Gate and winner: which variant of a run is chosen on each target."""
