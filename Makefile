# `make demo`, `make test`, `make bench` each install what is missing, build, and run.

.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c

BIN    := target/release/bentpipe
# What the tests run: overflows and assertions are checked in it, and nothing is built twice.
CHECKED := $(CURDIR)/target/debug/bentpipe
VENV   := .venv
PYTHON := $(VENV)/bin/python
# Runs a command where network namespaces can be made: as root as it is, otherwise in a user namespace.
NETADMIN := scripts/with-namespaces

.PHONY: help setup build demo demo-quick test test-long lint unit e2e rough bench conformance controllers budgets studies schemas types fuzz install static deb fmt lock clean

help: ## these lines
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(VENV)/.locked ## install what is missing (Debian packages when root, Python packages into .venv)
	@scripts/install-missing

build: ## the binary, optimised
	cargo build --release --locked

demo: setup build ## direct TCP against bentpipe on GEO and LEO; writes out/demo/report.html
	@$(NETADMIN) $(PYTHON) -m bentpipe_lab demo --out out/demo

demo-quick: setup build ## the demo with one run of each workload
	@$(NETADMIN) $(PYTHON) -m bentpipe_lab demo --quick --out out/demo

bench: setup build ## speed, memory and punctuality of tunnel and emulator; writes out/bench/summary.json
	@cargo build --release --locked --example plain_loop
	@$(NETADMIN) $(PYTHON) -m bentpipe_lab bench --out out/bench
	@$(PYTHON) -m bentpipe_lab.bench.virtual_time --out out/bench
	@$(NETADMIN) $(PYTHON) -m bentpipe_lab.bench.engine
	@$(PYTHON) -m bentpipe_lab.bench.report

controllers: setup build ## the tunnel's controllers in real time, quiet and beside busy processes; QUICK=1: half an hour
	@$(NETADMIN) $(PYTHON) -m bentpipe_lab controllers $(if $(QUICK),--quick) --out out/controllers

LINKS_SEED ?= 1
budgets: build ## the controllers against their goals, and on 200 links drawn by LINKS_SEED (1), 30 seeds of each: some seven hours on two processors, and links go on where they were interrupted; writes out/budgets.json
	@$(BIN) sim never-worst --seed $(LINKS_SEED) --seeds 30 --out out/never-worst.json
	@$(BIN) sim budgets --out out/budgets.json

studies: setup build ## published studies beside their figures, each at most ten minutes; FULL=1: whole; writes out/studies/index.html
	@$(NETADMIN) $(PYTHON) -m bentpipe_lab studies $(if $(FULL),,--quick) --out out/studies

schemas: build ## the JSON Schemas of all files, as the binary prints them; writes schemas/
	@mkdir -p schemas
	@for name in $$($(BIN) schema); do $(BIN) schema $$name > schemas/$$name.json; done

types: setup ## the lab's types of the binary's records, from schemas/
	$(PYTHON) -m bentpipe_lab.records.generate

FUZZ_SECONDS := 60
fuzz: ## properties on cases drawn anew, then every fuzz target for FUZZ_SECONDS (needs cargo-fuzz)
	@export PROPTEST_RNG_SEED=$$(date +%s) && echo "PROPTEST_RNG_SEED=$$PROPTEST_RNG_SEED" && \
		cargo test --workspace --locked --lib --test generated --test scenario_text --test properties --test parsing --test direction --test notation && \
		cargo test --workspace --locked --test tunnel properties
	@for target in $$(cargo fuzz list); do \
		cargo fuzz run --sanitizer none $$target -- -max_total_time=$(FUZZ_SECONDS) -timeout=10 || exit 1; done

test: lint unit e2e ## lints, unit tests, properties, conversations, end to end in namespaces: all but what takes long

lint: setup ## formatting, clippy, ruff, mypy
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cd lab && ../$(VENV)/bin/ruff format --check . ../e2e && ../$(VENV)/bin/ruff check . ../e2e && ../$(VENV)/bin/mypy && ../$(VENV)/bin/mypy ../e2e

# Properties are tried on the same cases each time; `make fuzz` draws others.
PROPTEST_RNG_SEED ?= 1
export PROPTEST_RNG_SEED
LAB_TESTS := $(PYTHON) -m pytest -q -c lab/pyproject.toml -n 2 lab/tests
E2E_TESTS := $(NETADMIN) --or-skip $(PYTHON) -m pytest -c lab/pyproject.toml --rootdir e2e -n 10 --dist loadscope e2e
unit: setup ## the tests of the crates and of the lab
	cargo test --workspace --locked
	BENTPIPE=$(CHECKED) $(LAB_TESTS) -m "not long"

e2e: setup ## real programs through a real tunnel, in network namespaces
	@# The binary as the unit tests have it: built for itself its dependencies lack what tests ask of them, and are compiled anew.
	cargo test --workspace --locked --no-run --test emulate
	@BENTPIPE=$(CHECKED) $(E2E_TESTS) -m "not long"

test-long: setup ## the tests that `make test` leaves out, because they take long: some fourteen minutes on two processors
	cargo test --workspace --locked -- --ignored
	BENTPIPE=$(CHECKED) $(LAB_TESTS) -m long
	@BENTPIPE=$(CHECKED) $(E2E_TESTS) -m long

ROUGH_S ?= 1200
rough: setup build ## rough weather for ROUGH_S seconds (1200), ROUGH_SEED says which: both ends killed, moved, flooded, starved
	@BENTPIPE_ROUGH_S=$(ROUGH_S) BENTPIPE_ROUGH_SEED=$(or $(ROUGH_SEED),1) $(NETADMIN) --or-skip $(PYTHON) -m pytest -c lab/pyproject.toml --rootdir e2e e2e/test_rough_weather.py e2e/test_unread_transfers.py

CONFORMANCE := all
conformance: setup build ## ours and others' proxies against e2e/conformance; writes docs/conformance.md (needs Go for some)
	@mkdir -p out && rm -f out/conformance.jsonl
	@CONFORMANCE=$(CONFORMANCE) CONFORMANCE_RESULTS=out/conformance.jsonl CONFORMANCE_CONNECTIONS=10000 CONFORMANCE_MAPPINGS=10000 \
		$(NETADMIN) $(PYTHON) -m pytest -q -c lab/pyproject.toml --rootdir e2e e2e/conformance
	@CONFORMANCE_CONNECTIONS=10000 CONFORMANCE_MAPPINGS=10000 PYTHONPATH=e2e $(PYTHON) -m conformance.table out/conformance.jsonl docs/conformance.md

PREFIX := /usr/local
install: build ## binary, manual pages, completions and systemd units below DESTDIR and PREFIX (/usr/local)
	deploy/install $(BIN) "$(DESTDIR)" "$(PREFIX)"

# Beside what `build` makes, none of which is built again for it. The crate getrandom finds the C library's function in
# shared libraries alone, and else reads /dev/urandom, which need not be there: hence the system call.
STATIC := target/static
static: ## the binary for any Linux of this machine's kind, C library included; writes target/static/bentpipe
	@host=$$(rustc -vV | sed -n 's/^host: //p') && RUSTFLAGS="$${RUSTFLAGS:-} -C target-feature=+crt-static --cfg getrandom_backend=\"linux_getrandom\"" \
		cargo build --release --locked -p bentpipe --target "$$host" --target-dir $(STATIC) && \
		ln -f "$(STATIC)/$$host/release/bentpipe" $(STATIC)/bentpipe

deb: build ## a Debian package; writes out/bentpipe_VERSION_ARCHITECTURE.deb
	@deploy/deb $(BIN) out

fmt: setup ## format everything
	cargo fmt --all
	cd lab && ../$(VENV)/bin/ruff format . ../e2e && ../$(VENV)/bin/ruff check --fix . ../e2e

lock: ## resolve lab/requirements.lock anew (needs uv)
	uv pip compile --upgrade --generate-hashes --no-header --no-emit-index-url --python-version 3.11 \
		--extra dev lab/pyproject.toml --output-file lab/requirements.lock

clean: ## remove what was built and measured
	rm -rf target out $(VENV)

# The environment holds exactly what the lock names, checked by hash, and finds the lab in this checkout;
# bentpipe-lab is its command.
$(VENV)/.locked: lab/requirements.lock scripts/install-missing
	@scripts/install-missing
	rm -rf $(VENV)
	python3 -m venv $(VENV)
	$(PYTHON) -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: -r $<
	@$(PYTHON) -c 'import pathlib, site; pathlib.Path(site.getsitepackages()[0], "bentpipe_lab.pth").write_text(str(pathlib.Path("lab/src").absolute()))'
	@printf '#!%s\nimport sys\n\nfrom bentpipe_lab.__main__ import main\n\nsys.exit(main())\n' "$(CURDIR)/$(PYTHON)" >$(VENV)/bin/bentpipe-lab
	@chmod +x $(VENV)/bin/bentpipe-lab
	@touch $@
