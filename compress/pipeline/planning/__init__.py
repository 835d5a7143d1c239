"""The parts of a plan: data, models, variants, and what is measured and reported of them."""
