"""From a recipe to a plan of steps, their results in a shared store, and a report."""
