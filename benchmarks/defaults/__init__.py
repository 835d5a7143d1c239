"""Whether default settings are good: a sweep of settings, and a comparison of the default recipe with other ways."""
