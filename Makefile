# A newcomer needs two commands: `make demo` and `make test`. Each sets up the repo's own .venv first, from locked
# packages and nothing else; the second call finds it ready. Why each line of the set-up is there: CONTRIBUTING.md.
PY   ?= python3
V    := .venv
BIN  := $(V)/bin
LOCK := requirements.lock
OLD  := $(V)/lib/python*/site-packages/flyball-[0-9]*.dist-info
UV   := $(shell uv pip install --help 2>/dev/null | grep -q -e '--group' && command -v uv || echo $(BIN)/uv)

export UV_PYTHON_DOWNLOADS = never
export UV_SYSTEM_CERTS ?= $(if $(wildcard /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt),true,false)
INDEX = i="$${UV_DEFAULT_INDEX:-$${PIP_INDEX_URL:-$$($(PY) -m pip config get global.index-url 2>/dev/null)}}"; \
        [ -z "$$i" ] || export UV_DEFAULT_INDEX="$$i"
INSTALL = $(INDEX); $(UV) pip install -q -p $(BIN)/python --only-binary :all: --no-binary flyball-ai -c $(LOCK) -b $(LOCK)
LOCAL = $(INSTALL) -e '.[local]' --group weights 2>/dev/null || echo "A local model cannot be had here; going on without."

# A .venv whose Python or uv is gone is worth nothing, nor is one with the package under its earlier name, flyball. This
# must be known before make looks at the stamps in it.
$(shell [ ! -e $(V) ] || { $(BIN)/python -c "" && command -v $(UV) && ! ls -d $(OLD); } >/dev/null 2>&1 || rm -rf $(V))

.NOTPARALLEL:
.PHONY: demo test test-exec test-adapters test-oldest check format bench forecast reports soak snapshots screenshots shapes lock lock-exec clean

demo: $(V)/.demo
	@$(BIN)/python examples/demo.py

test: $(V)/.dev
	@$(INDEX); $(BIN)/python -m pytest -n auto --dist loadfile $(ARGS)

test-exec: $(V)/.dev
	@$(INDEX); $(BIN)/python tools/exec_matrix.py $(ARGS)

test-adapters: $(V)/.dev
	@$(INDEX); $(BIN)/python tools/adapter_matrix.py $(ARGS)

test-oldest: $(V)/.dev
	@$(INDEX); $(BIN)/python tools/oldest_releases.py $(ARGS)

check: $(V)/.dev
	@$(BIN)/ruff format --check -q . && $(BIN)/ruff check -q . && $(BIN)/pyright && $(BIN)/python tools/check_types.py

format: $(V)/.dev
	@$(BIN)/ruff check -q --fix . ; $(BIN)/ruff format -q .

bench: $(V)/.dev
	@$(BIN)/python benchmarks/figures.py $(ARGS)

forecast: $(V)/.dev
	@$(BIN)/python benchmarks/forecast.py $(ARGS)

reports: $(V)/.dev
	@$(BIN)/python benchmarks/reports.py $(ARGS)

soak: $(V)/.dev
	@CHAOS_EXAMPLES=20000 $(BIN)/python -m pytest tests/loop/test_*chaos*.py
	@EXAMPLES=2000 $(BIN)/python -m pytest -n auto --dist loadfile -m hypothesis
	@DEMO=real $(BIN)/python -m pytest tests/house/test_examples.py
	@CRASHES=500 $(BIN)/python -m pytest tests/integration/test_kill.py tests/integration/test_extend.py
	@OPEN_CLOSE_SECONDS=120 $(BIN)/python -m pytest -q -s tests/integration/test_open_close.py

snapshots: $(V)/.dev
	@SNAPSHOTS=write $(BIN)/python -m pytest -q -n 0 $(ARGS)
	@$(BIN)/python tests/adapters/stories/table.py

screenshots: $(V)/.dev
	@$(BIN)/python tools/screenshots.py

shapes: $(V)/.dev
	@SHAPES=write $(BIN)/python -m pytest -q tests/models/test_shapes.py

lock: | $(V)/.uv
	@$(INDEX); $(UV) pip compile -q -p $(BIN)/python pyproject.toml --all-extras --group dev --group weights --universal \
	  --generate-hashes --no-header --no-annotate --upgrade -o $(LOCK)

lock-exec: $(V)/.dev
	@$(INDEX); $(BIN)/python tools/exec_lock.py $(ARGS)

clean:
	@rm -rf $(V) .hypothesis .mypy_cache .pytest_cache .ruff_cache

$(V)/.demo: pyproject.toml $(LOCK) | $(V)/.uv
	@$(INSTALL) -e '.[cli]'
	@$(LOCAL) && touch $@

$(V)/.dev: pyproject.toml $(LOCK) | $(V)/.uv
	@$(INSTALL) -e '.[cli,gateway,mcp,otel]' --group dev
	@$(LOCAL) && touch $@ $(V)/.demo

$(V)/.uv:
	@$(PY) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 11) and \
	  "Flyball needs Python 3.11 or later; $(PY) is %d.%d. Name another: make PY=python3.12 ..." % v[:2])'
	@echo "Setting up $(V) (once) ..."
	@if [ "$(UV)" != $(BIN)/uv ]; then \
	  $(UV) venv -q --clear -p "$$($(PY) -c 'import sys; print(sys.executable)')" $(V); \
	else \
	  if $(PY) -m venv --clear $(V) >/dev/null 2>&1; then pip="$(BIN)/python -m pip"; \
	  else $(PY) -m venv --clear --without-pip $(V) && pip="$(PY) -m pip --python $(BIN)/python"; fi && \
	  sed -n '/^uv==/,/[^\\]$$/p' $(LOCK) >$(V)/uv.txt && \
	  $$pip install -q --disable-pip-version-check --require-hashes --no-deps -r $(V)/uv.txt; \
	fi
	@touch $@
