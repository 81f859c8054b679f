"""What a label means: loss, prediction, metric. The only code that knows."""
