# `make demo` and `make test` are all that a fresh machine with Python 3.11 needs.
PYTHON ?= $(shell command -v python3.11 || echo python3)
VENV := .venv
BIN := $(VENV)/bin
FAISS ?= cpu
INSTALLED := $(VENV)/.installed
ARGS ?=
KILLS ?= 1000
OPERATIONS ?= 200000
REQUESTS ?= 500
# Tests that run side by side: one more than there are cores, because some wait for processes and browsers.
TESTS_AT_ONCE ?= $(shell expr $$(nproc) + 1)

# Where modules may not be kept compiled, each of the many processes that tests start compiles them again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: install demo test test-slow docs client-typescript test-faults test-hostile lint format types screenshots benchmark benchmark-throughput benchmark-encoding benchmark-input benchmark-training benchmark-overload benchmark-pacs benchmark-objectives benchmark-factors benchmark-feedback benchmark-retraining bench-search bench-server mutations check-gpu sbom check-image clean

install: $(INSTALLED)

# torch comes first and by exact version: a looser range could pull another build with gigabytes of CUDA.
$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info[:2] < (3, 11))" || { echo "Python 3.11 is needed: install it, or say PYTHON=/path/to/python3.11" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check torch==2.13.0
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[all,$(FAISS),dev]"
	touch $@

demo: install
	$(BIN)/recoquest demo $(ARGS)

test: install lint types
	$(BIN)/pytest --numprocesses $(TESTS_AT_ONCE) --dist loadfile --no-loadscope-reorder $(ARGS)

# Each takes nearly a second of processor time or more, such as two steps of every single recipe.
test-slow: install
	$(BIN)/pytest --numprocesses $(TESTS_AT_ONCE) --dist loadfile -m slow $(ARGS)

# Kills, random operations, damage and full disks, as long as ARGS and these two variables say.
test-faults: install
	RECOQUEST_TEST_KILLS=$(KILLS) RECOQUEST_TEST_OPERATIONS=$(OPERATIONS) $(BIN)/pytest -m "slow or not slow" tests/faults $(ARGS)

# Hostile requests, as many as REQUESTS says, to the service on SQLite and on PostgreSQL.
test-hostile: install
	RECOQUEST_TEST_HOSTILE=$(REQUESTS) $(BIN)/pytest -s tests/hostile $(ARGS)

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: install
	$(BIN)/mypy --num-workers 2
	$(BIN)/mypy docs/build.py
	cd clients/python && ../../$(BIN)/python -c "import setup; setup.write_client()"
	$(BIN)/mypy clients/python

# The pictures of docs/, from a running demo and with a key of a curator: make screenshots ARGS="http://localhost:8000 KEY"
screenshots: install
	$(BIN)/python -m tests.browser.screenshots $(ARGS)

# The documentation as a site in .site/html, with the reference made from the code; ARGS=--serve shows it.
docs: install
	$(BIN)/python docs/build.py $(ARGS)

# Types of clients/typescript (src/schema.ts), which its build needs; from the OpenAPI document, by Node.js with npm.
client-typescript: install
	$(BIN)/python -m tests.clients.typescript

# What a search over HTTP costs beside encoding and scanning.
benchmark: install
	$(BIN)/python -m tests.benchmarks.http_overhead

# Searches a second under load beside the bare encoder; ARGS names photographs and pretrained towers.
benchmark-throughput: install
	$(BIN)/python -m tests.benchmarks.throughput $(ARGS)

# Texts and images of a bundle by ONNX Runtime beside PyTorch: make benchmark-encoding ARGS=runs/mine/bundle
benchmark-encoding: install
	$(BIN)/python -m tests.benchmarks.encoding $(ARGS)

# Reading of films and photographs beside torch's DataLoader; with a bundle the bulk embedder beside its encoder.
# Then what threads gain beside processes, by kind of file.
benchmark-input: install
	$(BIN)/python -m tests.benchmarks.reading $(ARGS)
	$(BIN)/python -m tests.benchmarks.threads

# Training from files and from prepared images beside the bare forward and backward pass.
benchmark-training: install
	$(BIN)/python -m tests.benchmarks.training $(ARGS)

# Films taken over from Orthanc beside its own speed, killed in between: make benchmark-pacs ARGS="--studies 10000"
benchmark-pacs: install
	$(BIN)/python -m tests.benchmarks.pacs $(ARGS)

# What the loss side of a step costs for each objective, beside InfoNCE.
benchmark-objectives: install
	$(BIN)/python -m tests.benchmarks.objective_cost $(ARGS)

# What InfoNCE, ReCo and QUEST keep beside a shortcut, on sample scenes; trains for some minutes.
benchmark-factors: install
	$(BIN)/python -m tests.benchmarks.shortcut_factors $(ARGS)

# What liking and disliking hits does for a search, beside averaging and Rocchio; trains for some minutes.
benchmark-feedback: install
	$(BIN)/python -m tests.benchmarks.feedback $(ARGS)

# What retraining gains from simulated readers' judgements; trains for some minutes.
benchmark-retraining: install
	$(BIN)/python -m tests.benchmarks.retraining $(ARGS)

# The service at ten times its capacity, for five minutes with texts and five with images.
benchmark-overload: install
	$(BIN)/python -m tests.benchmarks.overload $(ARGS)

# Search beside hnswlib, USearch, Milvus Lite and Qdrant Edge; those that do not install are left out and named.
bench-search: install
	-$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[all,$(FAISS),bench]"
	$(BIN)/python -m tests.benchmarks.search $(ARGS)

# The service over HTTP next to a bare echo, Milvus and pgvector: make bench-server ARGS="--count 2000"
bench-server: install
	$(BIN)/python -m tests.benchmarks.servers $(ARGS)

# The share of random mistakes that the quick tests notice, an hour for 300: make mutations ARGS="--folder /tmp/mutations"
mutations: install
	$(BIN)/python -m tests.benchmarks.mutations $(ARGS)

# On a machine with a GPU: exact hits, threads, batches and writes at a million vectors; a training step of each objective.
check-gpu: install
	$(BIN)/python -m tests.benchmarks.gpu $(ARGS)
	RECOQUEST_TEST_DEVICE=cuda $(BIN)/pytest -q -m "slow or not slow" tests/training/recipes/test_every_recipe.py -k test_recipe_trains

# All that is installed, with versions and licences, in CycloneDX: build/recoquest.cdx.json. The tool has an environment of its own.
sbom: install
	test -x build/sbom/bin/python || $(PYTHON) -m venv build/sbom
	build/sbom/bin/pip install --quiet --disable-pip-version-check cyclonedx-bom==7.5.0
	build/sbom/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible \
		--output-file build/recoquest.cdx.json $(BIN)/python

# Builds and starts the Docker image without an engine; needs root, buildah and debootstrap.
check-image:
	docker/check.sh $(ARGS)

clean:
	rm -rf $(VENV) .bench .demo .mypy_cache .ruff_cache .pytest_cache build *.egg-info
