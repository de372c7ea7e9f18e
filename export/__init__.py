"""Export: a trained checkpoint as a folder that others can load, run and read about."""
