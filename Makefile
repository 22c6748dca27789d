# All tasks of this repository. A machine needs Python 3.11+, Java 17+ and make; everything else is installed into .venv.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# Compiled modules let commands start quickly.
unexport PYTHONDONTWRITEBYTECODE
export UV_PROJECT_ENVIRONMENT := .venv

BIN := .venv/bin
# The package is built by the tools in .venv, whose hashes are verified. The build fetches no others.
UV_SYNC := $(BIN)/uv sync --locked --inexact --extra all --compile-bytecode --no-build-isolation-package manifest-platform
SYNCED := .venv/.synced
SYNCED_BENCH := .venv/.synced-bench
SYNCED_DOCS := .venv/.synced-docs
# The tools of the site of docs/, and the script that draws its pictures.
PICTURES := site/node_modules/.package-lock.json
SPHINX := $(BIN)/python -m sphinx -q -W --keep-going -E -j auto -c site -d dist/docs-doctrees

# The configuration of the demo's data: that of the repository, or the one that a demo on another warehouse wrote.
DEMO_FILE := manifest_platform$(if $(filter veeva,$(PIPELINE)),_veeva).yaml
DEMO_CONFIG := $(if $(WAREHOUSE),.demo$(if $(filter veeva,$(PIPELINE)),-veeva)-$(WAREHOUSE)/$(DEMO_FILE),$(if $(PIPELINE),$(DEMO_FILE)))
UI_HOST ?= 127.0.0.1
UI_PORT ?= 3000
# The others take longer: docs/reference/speed.md names them with their commands.
BENCHMARKS := ordered_load shred drain_overhead manifest_stores manifest_scale ticks takeover merge plan cdc rewind archive registry duplicates 'discovery --scale 0.03'
# The paths that pytest runs: make test TESTS=manifest_platform_tests/manifest
TESTS ?=
# The stores for tests of rules above the store's contract: embedded (SQLite only) or all (PostgreSQL and DynamoDB Local too).
STORES ?= embedded
# The folder that `make jars` fills; by default the user's cache.
JARS ?=
# Tests mostly wait for servers and for killed processes, so five processes keep two cores busy: about 8 minutes in all.
WORKERS ?= 5
# A test that its time limit cannot end, as one that waits within C, ends its process after so many seconds, with its stack.
HUNG ?= 600

.PHONY: help demo ui test test-long test-installed screenshots docs docs-links reference check model oracle soak way-of-an-item bench sbom advisories jars release build-tools checkov-tools prose clean demo-clean requirements

help: ## Lists these targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | while IFS='|' read -r name text; do printf '%-18s %s\n' "$$name" "$$text"; done

demo: $(SYNCED) ## Loads ten runs of a web shop, one broken, one late: about a minute (PIPELINE=veeva: a vault's day; STORE=dynamodb; WAREHOUSE=postgresql, redshift-standin; DEPLOYMENT=cluster: S3, DynamoDB, PostgreSQL and two Spark workers)
	@$(BIN)/$(if $(filter redshift-standin,$(WAREHOUSE)),python -m manifest_platform_tests.demo.standin,manifest-platform demo $(if $(WAREHOUSE),--warehouse $(WAREHOUSE))) \
		$(if $(PIPELINE),--pipeline $(PIPELINE)) $(if $(STORE),--store $(STORE)) $(if $(filter cluster,$(DEPLOYMENT)),--cluster)

ui: $(SYNCED) ## Starts Dagster with the same data, on http://127.0.0.1:3000 (PIPELINE=veeva, WAREHOUSE=postgresql, DEPLOYMENT=cluster, UI_HOST, UI_PORT)
	@mkdir -p -m 700 .dagster_home
	@cp dagster.yaml .dagster_home/
ifeq ($(DEPLOYMENT),cluster)
	@DAGSTER_CLI_DEV_HOST=$(UI_HOST) DAGSTER_CLI_DEV_PORT=$(UI_PORT) $(BIN)/manifest-platform demo --cluster --serve
else
	$(if $(WAREHOUSE),@$(BIN)/manifest-platform demo --serve --warehouse $(WAREHOUSE) $(if $(PIPELINE),--pipeline $(PIPELINE)))
	$(if $(DEMO_CONFIG),MANIFEST_PLATFORM_CONFIG="$(CURDIR)/$(DEMO_CONFIG)") \
	DAGSTER_HOME="$(CURDIR)/.dagster_home" $(BIN)/dagster dev -w workspace.yaml -h $(UI_HOST) -p $(UI_PORT)
endif

test: $(SYNCED) ## Runs the tests, without those that take minutes (TESTS=path for some, STORES=all, WORKERS=n processes)
	$(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m "not long and not installed" --stores=$(STORES) \
		-o faulthandler_timeout=$(HUNG) -o faulthandler_exit_on_timeout=true --max-worker-restart=0 $(TESTS)

test-long: $(SYNCED) ## Runs the tests that take minutes, and random tests with all cases (MINUTES=n to stop then, TESTS=files)
	$(BIN)/python scripts/tests_for_change.py long $(if $(MINUTES),--minutes $(MINUTES)) $(TESTS)

test-installed: $(SYNCED) ## Builds the wheel, installs it elsewhere, alone and with all extras, and tries it: four minutes
	$(BIN)/pytest -m installed manifest_platform_tests/installed

screenshots: $(SYNCED) ## Takes the docs' pictures of Dagster's pages again; needs Chromium
	MANIFEST_PLATFORM_SCREENSHOTS=docs/pictures $(BIN)/pytest -q manifest_platform_tests/orchestration/test_browser.py

docs: $(SYNCED_DOCS) $(PICTURES) ## Builds the site of docs/ in dist/docs; fails on a warning or a broken link
	@rm -rf dist/docs
	@$(SPHINX) -b html docs dist/docs
	@echo "$(CURDIR)/dist/docs/index.html"

docs-links: $(SYNCED_DOCS) $(PICTURES) ## Requests every web address in docs/; needs the internet
	@$(SPHINX) -b linkcheck docs dist/docs-links

reference: $(SYNCED) ## Writes the pages of docs/reference that are made from code: commands, configuration, JSON
	$(BIN)/python scripts/commands_page.py > docs/reference/commands.md
	$(BIN)/manifest-platform config reference > docs/reference/configuration.md
	$(BIN)/manifest-platform schema > docs/reference/json.md

check: $(SYNCED) ## Checks format, lint, types, import layers, duplicates, Dagster definitions, deploy/ and English
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/ty check
	$(BIN)/lint-imports
	$(BIN)/pylint --disable=all --enable=duplicate-code --min-similarity-lines=8 --ignore-imports=y --ignore-signatures=y \
		manifest_platform manifest_platform_tests benchmarks/*.py
	VIRTUAL_ENV="$(CURDIR)/.venv" $(BIN)/dg check defs
	$(BIN)/hadolint deploy/Dockerfile
	$(BIN)/cfn-lint deploy/aws/*.yaml
	$(BIN)/python scripts/checkov.py
	$(BIN)/python scripts/prose.py

prose: $(SYNCED) ## Checks the English of documents, docstrings and comments with Vale (TEXTS=paths for some)
	@$(BIN)/python scripts/prose.py $(TEXTS)

sbom: $(SYNCED) ## Writes dist/sbom.cdx.json: every package and jar that the platform runs with, with hashes (CycloneDX)
	@$(BIN)/python scripts/sbom.py

advisories: $(SYNCED) ## Asks an advisory database about every locked package; exits with 75 if it cannot be reached
	@scripts/advisories

jars: $(SYNCED) ## Fetches and verifies the jars with which Spark reads s3a://; prints the line for its properties (JARS=folder)
	@$(BIN)/python -m manifest_platform.spark.jars $(JARS)

release: $(SYNCED) ## Sets the version, builds, tries the wheel, commits and tags; uploads nothing (VERSION=1.2.3)
	@$(BIN)/python scripts/release.py "$(VERSION)"

build-tools: $(SYNCED) ## Writes scripts/build_tools.txt, the tools of the build with their hashes, from uv.lock
	$(BIN)/uv export --quiet --locked --only-group build --no-emit-project --no-header --format requirements.txt \
		--output-file scripts/build_tools.txt

checkov-tools: $(SYNCED) ## Writes scripts/checkov.txt, checkov and its packages with their hashes, in their newest releases
	echo checkov | $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
		--output-file scripts/checkov.txt -

model: $(SYNCED) ## Explores every interleaving of the manifest's protocol, millions of states, in some minutes
	@$(BIN)/python -m manifest_platform_tests.model

oracle: $(SYNCED) ## Compares enriched events of your own with what Snowplow's Python SDK makes of them (EVENTS=folder SCHEMAS=registries)
	@$(BIN)/python -m manifest_platform_tests.sources.snowplow.oracle "$(EVENTS)" $(SCHEMAS)

soak: $(SYNCED) ## Plays a long day: runs land, some corrupt, processes are killed; audits it and prints the growth (MINUTES=20; DEPLOYMENT=cluster)
	@$(BIN)/python -m manifest_platform_tests.soak$(if $(filter cluster,$(DEPLOYMENT)),.on_cluster --minutes $(or $(MINUTES),10), --minutes $(or $(MINUTES),20)) $(if $(SEED),--seed $(SEED))

way-of-an-item: $(SYNCED) ## Lists our modules that one item's drain runs, by layer
	@$(BIN)/python scripts/way_of_an_item

bench: $(SYNCED_BENCH) ## Runs the shorter benchmarks, each against its peer, and prints one table
	@$(BIN)/python benchmarks/all.py $(BENCHMARKS)

demo-clean: $(SYNCED) ## Removes the files of the demo
	@$(BIN)/manifest-platform demo $(if $(PIPELINE),--pipeline $(PIPELINE)) --clean

clean: ## Removes .venv, caches, Dagster's home and the files of the demo
	rm -rf .venv .demo .demo-* .dagster_home .cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis spark-warehouse dist site/node_modules
	find manifest_platform manifest_platform_tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

# Fails first if Python or Java is missing, and names what to install.
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
