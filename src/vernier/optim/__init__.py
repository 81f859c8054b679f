"""How weights change: decay groups, the optimiser, learning-rate schedules, moving averages."""
