"""General distillation: a student without a task learns from a teacher."""
