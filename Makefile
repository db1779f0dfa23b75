# The project's commands. Each makes what it needs; `make demo` and `make test` work on a fresh clone.
PYTHON ?= python3
VENV   ?= .venv
BIN     = $(VENV)/bin
JOBS   ?= 2

.PHONY: demo test lint interop soak sanitize bench native clean

# The virtual environment: rebuilt when what is installed from this tree changed.
$(VENV)/.installed: pyproject.toml CMakeLists.txt $(wildcard native/*) $(shell find src -name '*.py' -not -path '*/__pycache__/*')
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet '.[test,cli,server]'
	touch $@

demo: $(VENV)/.installed
	$(BIN)/tiltyard demo

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	$(BIN)/python -m pytest -n $(JOBS) --durations=20 -m 'not soak and not wide'

interop: $(VENV)/.installed
	$(BIN)/python -m pytest -n $(JOBS) --durations=20 tests/interop

# Long races and searches: at most an hour. TILTYARD_SOAK_MINUTES and TILTYARD_SOAK_SEED: see docs/testing.md.
soak: $(VENV)/.installed
	$(BIN)/python -m pytest -n $(JOBS) --maxschedchunk 1 --durations=20 -m soak

sanitize: $(VENV)/.installed
	sh tests/sanitize/run.sh $(BIN)/python

bench: $(VENV)/.installed
	$(BIN)/python benchmarks/run.py

# Kernels into the source tree, for development with PYTHONPATH=src.
native: $(VENV)/.installed
	$(BIN)/pip install --quiet cmake ninja nanobind
	$(BIN)/cmake -S . -B build/dev -G Ninja -DTILTYARD_INPLACE=ON -DPython_EXECUTABLE=$(abspath $(BIN)/python) -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja)
	$(BIN)/cmake --build build/dev

clean:
	rm -rf build dist $(VENV) src/tiltyard/kernels/*.so
