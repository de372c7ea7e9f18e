"""The first minute on a machine: checks of what tests on a CPU cannot see, under the real launcher, with one table."""
