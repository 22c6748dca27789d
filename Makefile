# Everything that one does with this repository. A machine needs Python 3.11+, Java 17+ and make; all else comes into .venv.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# Compiled modules are what makes commands start at once.
unexport PYTHONDONTWRITEBYTECODE
export UV_PROJECT_ENVIRONMENT := .venv

BIN := .venv/bin
# The package is built by the tools that stand in .venv, with their hashes verified: none are fetched for it.
UV_SYNC := $(BIN)/uv sync --locked --inexact --extra all --compile-bytecode --no-build-isolation-package manifest-platform
SYNCED := .venv/.synced
SYNCED_BENCH := .venv/.synced-bench
SYNCED_DOCS := .venv/.synced-docs
# The tools of the site of docs/, and the script that draws its pictures.
PICTURES := site/node_modules/.package-lock.json
SPHINX := $(BIN)/python -m sphinx -q -W --keep-going -E -j auto -c site -d dist/docs-doctrees

UI_HOST ?= 127.0.0.1
UI_PORT ?= 3000
BENCHMARKS := ordered_load shred drain_overhead manifest_stores manifest_scale ticks takeover merge plan cdc rewind archive
# What pytest is to run: make test TESTS=manifest_platform_tests/manifest
TESTS ?=
# Where rules run that lie above the store's contract: embedded (SQLite alone) or all (PostgreSQL and DynamoDB Local too).
STORES ?= embedded
# Where `make jars` puts them; else the user's cache.
JARS ?=
# Tests wait for servers and for killed processes most of their time: five processes keep two cores busy, for some 8 minutes in all.
WORKERS ?= 5

.PHONY: help demo ui test test-long test-installed screenshots docs docs-links reference check model soak way-of-an-item bench sbom advisories jars release build-tools prose clean demo-clean requirements

help: ## Lists these targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | while IFS='|' read -r name text; do printf '%-18s %s\n' "$$name" "$$text"; done

demo: $(SYNCED) ## Loads ten runs of a web shop, one broken, one late: about a minute (PIPELINE=veeva: a vault's day; STORE=dynamodb)
	@$(BIN)/manifest-platform demo $(if $(PIPELINE),--pipeline $(PIPELINE)) $(if $(STORE),--store $(STORE))

ui: $(SYNCED) ## Starts Dagster with the same data, on http://127.0.0.1:3000 (PIPELINE=veeva, UI_HOST, UI_PORT)
	@mkdir -p -m 700 .dagster_home
	@cp dagster.yaml .dagster_home/
	$(if $(filter veeva,$(PIPELINE)),MANIFEST_PLATFORM_CONFIG="$(CURDIR)/manifest_platform_veeva.yaml") \
	DAGSTER_HOME="$(CURDIR)/.dagster_home" $(BIN)/dagster dev -w workspace.yaml -h $(UI_HOST) -p $(UI_PORT)

test: $(SYNCED) ## Runs the tests but for those that take minutes (TESTS=path for some, STORES=all, WORKERS=n processes)
	$(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m "not long and not installed" --stores=$(STORES) $(TESTS)

test-long: $(SYNCED) ## Runs what takes minutes, and random tests with all cases (MINUTES=n to stop then, TESTS=files)
	$(BIN)/python scripts/tests_for_change.py long $(if $(MINUTES),--minutes $(MINUTES)) $(TESTS)

test-installed: $(SYNCED) ## Builds the wheel, installs it elsewhere, alone and with all extras, and tries it: four minutes
	$(BIN)/pytest -m installed manifest_platform_tests/installed

screenshots: $(SYNCED) ## Makes the docs' pictures of Dagster's pages anew; needs Chromium
	MANIFEST_PLATFORM_SCREENSHOTS=docs/pictures $(BIN)/pytest -q manifest_platform_tests/orchestration/test_browser.py

docs: $(SYNCED_DOCS) $(PICTURES) ## Builds the site of docs/ in dist/docs; fails on a warning or a broken link
	@rm -rf dist/docs
	@$(SPHINX) -b html docs dist/docs
	@echo "$(CURDIR)/dist/docs/index.html"

docs-links: $(SYNCED_DOCS) $(PICTURES) ## Asks for every address of the web in docs/; needs the internet
	@$(SPHINX) -b linkcheck docs dist/docs-links

reference: $(SYNCED) ## Writes the pages of docs/reference that are made from code: commands, configuration, JSON
	$(BIN)/python scripts/commands_page.py > docs/reference/commands.md
	$(BIN)/manifest-platform config reference > docs/reference/configuration.md
	$(BIN)/manifest-platform schema > docs/reference/json.md

check: $(SYNCED) ## Checks format, lint, types, import layers, Dagster definitions and duplicates
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/ty check
	$(BIN)/lint-imports
	$(BIN)/pylint --disable=all --enable=duplicate-code --min-similarity-lines=8 --ignore-imports=y --ignore-signatures=y \
		manifest_platform manifest_platform_tests benchmarks/*.py
	VIRTUAL_ENV="$(CURDIR)/.venv" $(BIN)/dg check defs

prose: $(SYNCED) ## Checks the English of documents, docstrings and comments with Vale (TEXTS=paths for some)
	@$(BIN)/python scripts/prose.py $(TEXTS)

sbom: $(SYNCED) ## Writes dist/sbom.cdx.json: every package and jar that the platform runs with, with hashes (CycloneDX)
	@$(BIN)/python scripts/sbom.py

advisories: $(SYNCED) ## Asks an advisory database about every locked package; exit 75 where it cannot be reached
	@scripts/advisories

jars: $(SYNCED) ## Fetches the jars with which Spark reads s3a://, verified, prints the line for its properties (JARS=folder)
	@$(BIN)/python -m manifest_platform.spark.jars $(JARS)

release: $(SYNCED) ## Sets the version, builds, tries the wheel, commits and tags; uploads nothing (VERSION=1.2.3)
	@$(BIN)/python scripts/release.py "$(VERSION)"

build-tools: $(SYNCED) ## Writes scripts/build_tools.txt, the tools of the build with their hashes, from uv.lock
	$(BIN)/uv export --quiet --locked --only-group build --no-emit-project --no-header --format requirements.txt \
		--output-file scripts/build_tools.txt

model: $(SYNCED) ## Explores every interleaving of the manifest's protocol, millions of states: some minutes
	@$(BIN)/python -m manifest_platform_tests.model

soak: $(SYNCED) ## Plays a long day: runs land, some corrupt, processes are killed; audits, prints what grew (MINUTES=20)
	@$(BIN)/python -m manifest_platform_tests.soak --minutes $(or $(MINUTES),20)

way-of-an-item: $(SYNCED) ## Lists our modules that one item's drain runs, by layer
	@$(BIN)/python scripts/way_of_an_item

bench: $(SYNCED_BENCH) ## Runs every benchmark, each against its peer, and prints one table: up to 20 minutes
	@$(BIN)/python benchmarks/all.py $(BENCHMARKS)

demo-clean: $(SYNCED) ## Removes what the demo left
	@$(BIN)/manifest-platform demo $(if $(PIPELINE),--pipeline $(PIPELINE)) --clean

clean: ## Removes .venv, caches, Dagster's home and what the demo left
	rm -rf .venv .demo .demo-* .dagster_home .cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis spark-warehouse dist site/node_modules
	find manifest_platform manifest_platform_tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

# Says what to install where Python or Java is missing, before anything else happens.
requirements:
	@scripts/requirements >/dev/null

$(BIN)/uv: scripts/build_tools.txt | requirements
	"$$(scripts/requirements)" -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: -r $<
	@touch $@

$(SYNCED): uv.lock pyproject.toml | requirements $(BIN)/uv
	$(UV_SYNC)
	@touch $@

$(SYNCED_BENCH): $(SYNCED)
	$(UV_SYNC) --group bench
	@touch $@

$(SYNCED_DOCS): $(SYNCED)
	$(UV_SYNC) --group docs
	@touch $@

$(PICTURES): site/package-lock.json | $(SYNCED_DOCS)
	cd site && "$(CURDIR)/$(BIN)/npm" ci --silent
	@touch $@
