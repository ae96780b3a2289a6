# Two commands on a fresh machine with Python 3.11+ and make: `make run` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check --constraint constraints.txt

.PHONY: run test validate lint docs bench verify-models clean
.DEFAULT_GOAL := run

run: .venv/installed
	@$(BIN)/rapid-llm run examples/llama-3.1-70b-training.yaml
	@echo
	@$(BIN)/rapid-llm run examples/llama-2-70b-inference.yaml
	@$(MAKE) --no-print-directory .venv/compiled

test: .venv/installed-dev
	@$(BIN)/python -m pytest

# The scorecard; also the error quantiles that answers quote, and what the README shows of both.
# Larger tables of measurements, when they stand beside the checkout; the published figures of the package otherwise.
MEASURED ?= $(addprefix --data ,$(wildcard ../shared/data))

validate: .venv/installed
	@$(BIN)/rapid-llm validate $(MEASURED) --quantiles src/rapid_llm/predict/data/confidence.yaml \
		$(and $(MEASURED),--kernel-quantiles src/rapid_llm/validation/data/kernel_quantiles.yaml)
	@$(BIN)/python tools/update_readme.py

lint: .venv/installed-dev
	@$(BIN)/ruff check src tests benchmarks tools
	@$(BIN)/ruff format --check src tests benchmarks tools
	@$(BIN)/mypy
	@$(BIN)/lint-imports

docs: .venv/installed
	@$(BIN)/python tools/build_docs.py site

bench: .venv/installed
	@$(BIN)/python benchmarks/run.py
	@$(BIN)/python benchmarks/kernels.py
	@$(BIN)/python benchmarks/network_flow.py

# The exact parameter counts of the catalogue against the implementations in transformers, in an environment of its own.
verify-models: .venv-verify/installed
	@.venv-verify/bin/python tools/verify_models.py

clean:
	rm -rf .venv .venv-verify site out

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "rapid-llm needs Python 3.11 or later; name one with: make PYTHON=python3.12"; exit 2; }
	$(PYTHON) -m venv .venv

# Byte code is written at once, so that the first answer does not wait for it.
.venv/installed: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) --editable .
	@$(BIN)/python -m compileall -q src
	@touch $@

# After the first answers, the flow engine: what prices a network link by link is compiled once for all later runs.
.venv/compiled: .venv/installed
	@$(BIN)/rapid-llm run examples/faulted-training.yaml >/dev/null
	@$(BIN)/rapid-llm network collective all_reduce --system tpu-v4-pod --size 1MiB --accelerators 64 --network flow >/dev/null
	@touch $@

.venv/installed-dev: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) --editable '.[dev]'
	@$(BIN)/python -m compileall -q src
	@touch $@ .venv/installed

.venv-verify/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-verify
	.venv-verify/bin/python -m pip install --disable-pip-version-check --editable . torch transformers
	@touch $@
