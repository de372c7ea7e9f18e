"""Settings: the configuration that training and evaluation share, its files, and where its data and runs lie."""
