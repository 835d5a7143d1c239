"""Search: a budget in, one model out. A driver above the pipeline, whose trainings are steps of ordinary recipes."""
