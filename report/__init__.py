"""The run report: one page that shows the curves of training runs and evaluations, and every turn of their episodes."""
