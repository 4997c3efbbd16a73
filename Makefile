# Everything a newcomer needs: `make demo` and `make test`. Both create what they use.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# The demo's commands name the folder runs, wherever a user keeps others.
unexport MT_RUNS
# The tests start many processes, each of which would compile its modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-slow soak docs lint format dist clean

# The stamp names what the installation depends on: it is redone when one of them changes.
$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[data,dev,docs,documents,export,serve,tensorboard]"
	touch $@

demo: $(VENV)/.installed
	$(BIN)/mt train --config configs/demo.yaml
	$(BIN)/mt eval --model runs/demo
	$(BIN)/mt translate --model runs/demo "I love you very much"
	$(BIN)/mt translate --model runs/demo "The old woman does not drink the water." "Where is your friend?"

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	if [ -x $(BIN)/hadolint ]; then $(BIN)/hadolint Dockerfile; fi  # its package is for Linux on x86-64 only

# Tests have one thread each and wait for other processes half of the time, so two run on each core.
PROCESSES = $$($(BIN)/python -c "import os; print(min(8, 2 * (os.cpu_count() or 1)))")

test: lint
	$(BIN)/pytest --numprocesses $(PROCESSES) --dist worksteal

test-slow: $(VENV)/.installed
	$(BIN)/pytest -m slow --numprocesses $(PROCESSES) --dist worksteal

soak: $(VENV)/.installed
	$(BIN)/python scripts/soak.py --minutes 60

docs: $(VENV)/.installed
	$(BIN)/python scripts/reference.py
	$(BIN)/mkdocs build --quiet

# The sdist, the wheel that is built from it, and a check of both.
dist: $(VENV)/.installed
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/twine check --strict dist/*

format: $(VENV)/.installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache
