# make demo      install what the quickstart needs and run it
# make install   the same without the run: for a recipe of your own, and to serve its model
# make quick     the tests that run no pipeline and train nothing: two minutes, for every change
# make test      lint, types and every fast test
# make test-all  the slow, wheel and browser tests too
# make test-avx2 the training and loss tests as a CPU with AVX2 alone runs them
# make test-python PYTHON=python3.13  the export and runtime tests on another Python, in an environment of its own
# make test-neural-compressor  install that extra and run its tests
# make test-edge install ExecuTorch and LiteRT in an environment of their own and run their tests
# make benchmark-harness  check the timing harness against other tools and itself: 20 minutes on an idle machine
# make benchmark-distill  speed of distillation against other tools, and its memory: 40 minutes on an idle machine
#
# Needs Python 3.11, 3.12 or 3.13 and nothing else; everything goes into $(VENV).
#   PYTHON=python3.12       another interpreter
#   TORCH_INDEX=https://download.pytorch.org/whl/cpu    another build of torch (the README says what each one downloads)
#   PYTEST_ARGS="-k cards"  passed on to pytest
#   TESTS=tests/prune       the fast tests of these folders alone
#   WORKERS=1               test processes, one thread each; one for each core by default

VENV ?= .venv
# Exits with 0 on a Python that pyproject.toml admits.
ADMITTED = import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))
PYTHON ?= $(shell for each in python3 python3.13 python3.12 python3.11 python; do \
	$$each -c '$(ADMITTED)' 2>/dev/null && echo $$each && break; done)
TORCH_INDEX ?=
PYTEST_ARGS ?=
TESTS ?=
WORKERS ?= auto
HARNESS_ARGS ?=
DISTILL_ARGS ?=
MEMORY_ARGS ?=
RECIPE ?= recipes/quickstart.yaml

BIN := $(VENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
PIP := $(BIN)/python -m pip --disable-pip-version-check
# pip would compile every file, of which an import reads few: half of the installation.
INSTALL = $(PIP) install --no-compile -c constraints.txt
TORCH = torch==$(shell sed -n 's/^torch==//p' constraints.txt)
WITH_INDEX = $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))
MARKED := slow or wheel or browser
# Kills and launches of several processes, which no instruction set changes.
OF_PROCESSES := tests/train/test_kill.py tests/train/test_together.py
# What runs in Node and other tools, which no Python changes.
OF_OTHERS := tests/export/web/test_node_check.py tests/export/test_transformers_js.py tests/export/test_triton_config.py
# What runs no pipeline and exports, trains or times next to nothing.
NOT_QUICK := tests/test_light_paths.py tests/prune/test_measure_latency.py
QUICK := $(filter-out $(NOT_QUICK),$(wildcard tests/test_*.py tests/prune/test_*.py)) tests/prune/*/ tests/label tests/losses \
	tests/recipe tests/report tests/select tests/storage tests/steps tests/tasks tests/data tests/publish tests/model_folder
EDGE := $(VENV)-edge/bin/python
OTHER_MARKED ?= wheel or browser
OTHER_VENV ?= $(VENV)-$(shell $(PYTHON) -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
# Whatever shares the models of tests/edge_exports.py, wherever it is.
EDGE_TESTS := $(shell grep -rl "tests.edge_exports" tests --include="test_*.py")
# pip writes no bytecode (--no-compile), so the first import must: else every process compiles all of torch again.
unexport PYTHONDONTWRITEBYTECODE
PYTEST = OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

.PHONY: help demo install quick test test-all test-avx2 test-python python-env test-neural-compressor test-edge check fast marked benchmark-harness benchmark-distill constraints clean torch
.DEFAULT_GOAL := help

help:
	@sed -n '/^$$/q;s/^# \{0,1\}//p' Makefile

demo: $(VENV)/.installed-demo
	$(BIN)/python -m compress run $(RECIPE)

install: $(VENV)/.installed-demo

quick: $(VENV)/.installed-dev
	$(PYTEST) -m "not ($(MARKED))" $(QUICK) $(PYTEST_ARGS)

test: check fast

test-all: test marked

check: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

fast: $(VENV)/.installed-dev
	$(PYTEST) -m "not ($(MARKED))" $(TESTS) $(PYTEST_ARGS)

test-avx2: $(VENV)/.installed-dev
	ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 $(PYTEST) tests/train tests/losses $(OF_PROCESSES:%=--ignore=%)

# Several checkouts may share such an environment, whose editable install knows the last of them: hence PYTHONPATH.
test-python: python-env
	PYTHONPATH="$(CURDIR)" $(MAKE) fast VENV="$(OTHER_VENV)" MARKED="$(OTHER_MARKED)" TESTS="$(or $(TESTS),tests/export tests/runtime $(OF_OTHERS:%=--ignore=%))"

python-env:
	$(MAKE) VENV="$(OTHER_VENV)" "$(OTHER_VENV)/.installed-dev"

# After all others: what this extra brings writes to the error stream of every program that imports transformers.
test-neural-compressor: $(VENV)/.installed-dev
	$(INSTALL) --no-build-isolation -e ".[neural-compressor]"
	$(PYTEST) tests/quantize/test_neural_compressor.py $(PYTEST_ARGS)

# LiteRT's converter needs xdsl, which refuses typing_extensions since 4.13; so what needs a later one is older here.
test-edge: $(VENV)/.created
	$(PYTHON) -m venv $(VENV)-edge
	sed -E '/^(anyio|pydantic|pydantic_core|typing-inspection|typing_extensions)==/d' constraints.txt > $(VENV)-edge/constraints.txt
	$(EDGE) -m pip install --no-compile -c $(VENV)-edge/constraints.txt hatchling
	$(EDGE) -m pip install --no-compile -c $(VENV)-edge/constraints.txt $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) "$(TORCH)"
	$(EDGE) -m pip install --no-compile -c $(VENV)-edge/constraints.txt $(WITH_INDEX) --no-build-isolation pytest pytest-xdist -e ".[train,executorch,litert]"
	PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 OMP_NUM_THREADS=1 $(EDGE) -m pytest -p xdist -n $(WORKERS) --dist worksteal $(EDGE_TESTS) $(PYTEST_ARGS)

marked: $(VENV)/.installed-dev
	$(PYTEST) -m "$(MARKED)" $(PYTEST_ARGS)

$(VENV)/.installed-demo: $(VENV)/.created pyproject.toml constraints.txt | torch
	$(INSTALL) --no-build-isolation -e ".[train,quickstart,serve]"
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.created pyproject.toml constraints.txt | torch
	$(INSTALL) --no-build-isolation -e ".[all,dev]"
	@touch $@

# Installs everything, the other tools too. Needs an idle machine (benchmarks/README.md).
benchmark-harness: $(VENV)/.installed-dev
	$(BIN)/python -m benchmarks.harness $(HARNESS_ARGS)

# The other tools are installed in separate environments; SST-2 is read from $COMPRESS_DATA.
benchmark-distill: $(VENV)/.installed-dev
	TORCH_INDEX="$(TORCH_INDEX)" $(BIN)/python -m benchmarks.distill_throughput $(DISTILL_ARGS)
	$(BIN)/python -m benchmarks.distill_memory $(MEMORY_ARGS)

# The requested build of torch is installed first: once installed, any build satisfies the pin.
# Without TORCH_INDEX it is installed with the rest, from pip's default index.
torch: $(VENV)/.created
	@if [ -n "$(TORCH_INDEX)" ] && [ "$$(cat $(VENV)/.torch-index 2>/dev/null)" != "$(TORCH_INDEX)" ]; then \
		$(PIP) install --no-compile --force-reinstall --no-deps --index-url "$(TORCH_INDEX)" "$(TORCH)" \
		&& echo "$(TORCH_INDEX)" > $(VENV)/.torch-index; fi

# The build backend is pinned too, so it is installed here and not by pip in an isolated environment.
$(VENV)/.created:
	@test -n "$(PYTHON)" || { echo "error: no Python 3.11, 3.12 or 3.13 was found: install one, or name it: make PYTHON=/path/to/python3.12"; exit 1; }
	@$(PYTHON) -c '$(ADMITTED)' || { echo "error: Python 3.11, 3.12 or 3.13 is needed, $(PYTHON) is not (or not there): name another: make PYTHON=/path/to/python3.12"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "error: $(PYTHON) comes without venv and ensurepip: on Debian and Ubuntu, apt-get install python3-venv; else name another: make PYTHON=/path/to/python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) hatchling
	@touch $@

# Newest compatible versions, resolved in a separate environment; packages of extras that are not in `all` keep theirs.
# Review the diff before you commit it.
constraints:
	rm -rf $(VENV)-constraints
	$(PYTHON) -m venv $(VENV)-constraints
	$(VENV)-constraints/bin/python -m pip install $(WITH_INDEX) -e ".[all,dev]"
	$(VENV)-constraints/bin/python -m pip freeze --all --exclude-editable --exclude pip --exclude wheel > $(VENV)-constraints/frozen
	@sed -n '/^[^#]/q;p' constraints.txt > $(VENV)-constraints/head
	@sed -e 's/+.*//' -e '/^nvidia-ml-py==/b' -e '/^nvidia-/d' -e '/^cuda-/d' -e '/^triton==/d' $(VENV)-constraints/frozen > $(VENV)-constraints/new
	@awk -F== 'NR == FNR { new[$$1]; next } !/^#/ && !($$1 in new)' $(VENV)-constraints/new constraints.txt > $(VENV)-constraints/kept
	@sort -f $(VENV)-constraints/new $(VENV)-constraints/kept | cat $(VENV)-constraints/head - > constraints.txt
	rm -rf $(VENV)-constraints

clean:
	rm -rf $(VENV) $(VENV)-constraints $(VENV)-edge $(VENV)-python3.* dist build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
