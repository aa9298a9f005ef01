# The door for people: installs what is missing, then calls meson and ninja. `make help` lists all.
.DEFAULT_GOAL := help
SHELL := /bin/sh

BUILD := build
PORT  := 8765
PREFIX ?= /usr/local
PEER  := $(BUILD)/peer
SERVE := $(BUILD)/sallyport serve --listen ws://127.0.0.1:0

.PHONY: help build run check test test-all test-peer test-hosts coverage bench bench-peer format lint fuzz hooks install uninstall clean

help:
	@echo 'make build       the binary, at $(BUILD)/sallyport'
	@echo 'make run         build and serve on ws://127.0.0.1:$(PORT)'
	@echo 'make check       unit tests, fuzz corpora, format, layers and a smoke test of each door: 3 minutes'
	@echo 'make test        what CI runs: every promise in its short form, and sanitizers; T=WORD selects by name'
	@echo 'make test-all    every test in its long form, linters, test-peer and test-hosts: what a release runs'
	@echo 'make test-peer   the engine, and the interop tests, against codex exec-server (from npm)'
	@echo 'make test-hosts  eight agent hosts (from npm) with scripted models and `sallyport mcp`'
	@echo 'make coverage    which lines the unit and functional tests reach, as text'
	@echo 'make bench       measure the server beside the raw kernel limits'
	@echo 'make bench-peer  ... and beside codex exec-server (from npm)'
	@echo 'make format      lay out the sources    make lint   clang-tidy and cppcheck'
	@echo 'make fuzz        each fuzzer for a minute'
	@echo 'make hooks       run `make check` before each push of this clone'
	@echo 'make install     into PREFIX (default /usr/local)    make uninstall  remove what it installed'
	@echo 'make clean       remove what was built'

build:
	@tools/install-packages build
	@test -f $(BUILD)/build.ninja || { echo 'configuring $(BUILD) ...' >&2 && log=$$(meson setup $(BUILD) $(if $(CI),--werror) 2>&1) || \
	   { printf '%s\n' "$$log" >&2; exit 1; }; }
	@ninja -C $(BUILD) sallyport

run: build
	@$(BUILD)/sallyport serve --listen ws://127.0.0.1:$(PORT) --log-level info | { \
	   read -r url && echo "serving; Ctrl-C ends it and every process it runs. Whoever has this URL can run commands here:" && \
	   echo "  URL='$$url'" && echo 'Try, from another shell, after that line:' && \
	   { ! command -v curl >/dev/null || echo '  curl -i http://127.0.0.1:$(PORT)/readyz'; } && \
	   echo '  python3 examples/run.py "$$URL" -- sh -c "echo hello from $$(uname -s)"' && \
	   echo '  $(BUILD)/sallyport exec --on "$$URL" -- uname -a' && \
	   echo '  CODEX_EXEC_SERVER_URL="$$URL" codex exec "What is in this directory?"' && cat; }

check:
	@tools/install-packages build test
	@tools/run-tests check $(T)

test:
	@tools/install-packages build test
	@tools/run-tests test $(T)

test-peer: build
	@tools/install-packages build test
	@ninja -C $(BUILD) tests/functional/agent
	@peer=$$(bench/install-peer $(PEER)) && for t in tests/functional/test_acceptance_*.py; do \
	   AGENT_PEER="$$peer" SALLYPORT=$(BUILD)/sallyport PYTHONDONTWRITEBYTECODE=1 python3 $$t Remote || exit 1; done && \
	 for t in rules patch; do PEER="$$peer" SALLYPORT=$(BUILD)/sallyport PYTHONDONTWRITEBYTECODE=1 \
	   python3 tests/functional/test_$${t}_peer.py || exit 1; done && \
	 for t in tests/interop/test_*.py; do CODEX="$$peer" SALLYPORT_PEER="$$peer" PYTHONDONTWRITEBYTECODE=1 \
	   python3 $$t || exit 1; done

test-hosts: build
	@tools/install-packages build test
	@SALLYPORT=$(CURDIR)/$(BUILD)/sallyport tests/hosts/run "$$(tests/hosts/install $(BUILD)/hosts)" $(T)

test-all:
	@tools/install-packages build test long
	@tools/run-tests all
	@$(MAKE) --no-print-directory test-peer test-hosts

coverage:
	@tools/install-packages build test
	@tools/coverage $(T)

hooks:
	@git config core.hooksPath tools/hooks

bench: build
	@ninja -C $(BUILD) bench/sallyport-bench tests/sallyport-test-hosts
	@$(BUILD)/bench/sallyport-bench --server '$(SERVE)' --binary $(BUILD)/sallyport $(BENCH_ARGS)

bench-peer: build
	@ninja -C $(BUILD) bench/sallyport-bench tests/sallyport-test-hosts
	@peer=$$(bench/install-peer $(PEER)) && \
	 $(BUILD)/bench/sallyport-bench --server '$(SERVE)' --binary $(BUILD)/sallyport \
	   --peer "$$peer exec-server --listen ws://127.0.0.1:0" $(BENCH_ARGS)

format:
	@tools/install-packages build test
	@clang-format -i $$(git ls-files '*.c' '*.h')

lint:
	@tools/install-packages build test
	@tools/lint

fuzz:
	@tools/install-packages build test
	@tools/fuzz

# Only what is installed is built, not the tests. DESTDIR is honoured, too. The loader finds a new library by its cache.
install: build
	@meson configure $(BUILD) -Dprefix=$(PREFIX)
	@ninja -C $(BUILD) installed
	@meson install -C $(BUILD) --no-rebuild --quiet
	@[ -n "$(DESTDIR)" ] || [ "$$(id -u)" != 0 ] || PATH="$$PATH:/usr/sbin:/sbin" ldconfig
	@echo "installed into $(DESTDIR)$(PREFIX); \`make uninstall\` removes it"
	@lib=$(PREFIX)/$$(meson introspect --buildoptions $(BUILD) | python3 -c 'import json, sys; print(*(o["value"] for o in json.load(sys.stdin) if o["name"] == "libdir"))'); \
	 [ -n "$(DESTDIR)" ] || PATH="$$PATH:/usr/sbin:/sbin" ldconfig -p | grep -qF "$$lib/libsallyport.so.0" || \
	   echo "for C programs: export PKG_CONFIG_PATH=$$lib/pkgconfig LD_LIBRARY_PATH=$$lib"

# By the log of the last `make install` of this directory.
uninstall:
	@test -f $(BUILD)/meson-logs/install-log.txt || { echo 'nothing was installed from $(BUILD)' >&2; exit 1; }
	@ninja -C $(BUILD) uninstall

clean:
	rm -rf $(BUILD) build-*
