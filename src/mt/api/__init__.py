"""The Python API: load, train, evaluate and list runs. The command line calls it, too."""
