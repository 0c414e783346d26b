"""What runs in a grading sandbox: the C sources of the runner that calls kernels, checks and times them."""
