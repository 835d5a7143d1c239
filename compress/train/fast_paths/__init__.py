"""What makes training fast; the only place that uses private APIs of torch and transformers."""
