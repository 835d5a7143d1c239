"""Training: one loop, and two steps that use it (fine-tuning, distillation), for folders and for models in memory."""
