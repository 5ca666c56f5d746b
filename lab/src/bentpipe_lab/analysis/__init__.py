"""From samples to rows, bounds and budgets."""
