.PHONY: help setup demo test check bench clean

help: ## Show what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

setup: ## Make .venv with everything the demo and the tests need
	@scripts/setup

demo: setup ## Train a small language model in forking sandboxes, then show a report
	@.venv/bin/forkgym demo

test: setup ## Run all checks and tests, as CI does
	@scripts/check

check: setup ## Run the checks without the tests
	@scripts/check --fast

bench: setup ## Measure speed on this machine and write benchmarks/RESULTS.md
	@.venv/bin/python benchmarks/run.py

clean: ## Remove what runs and tools left in this folder, but not .venv
	@rm -rf runs dist build .pytest_cache .ruff_cache .import_linter_cache
