# Storlab's front door: `make demo` and `make test` install what they need. Each target is a script in scripts/.

.DEFAULT_GOAL := help
.PHONY: help demo check test test-guests costs coverage fuzz attack lint docs bench agent image zts-sanity zts-subset clean
MAKEFLAGS += --no-print-directory
export PYTHON

help: ## What can be made
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | column -t -s '|' 2>/dev/null \
		|| sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1  \2/p' Makefile

demo: ## Install what is missing, run the study `quick` on this machine, show the result
	@scripts/demo.sh

check: ## Lint, and the tests that take no root, guest, browser or network
	@scripts/check.sh

test: ## Install what is missing; lint, Rust tests, the tests on this machine, and a tour through everything
	@scripts/test.sh

test-guests: ## The second tier: virtual machines, images, browser, power cuts, suites
	@scripts/test-guests.sh

costs: ## Run every test and write down what each costs: its tier and its turn follow
	@scripts/costs.sh

coverage: ## Which lines and branches of each package the tests reach; THAN=FILE compares with earlier figures
	@scripts/coverage.sh

fuzz: ## Tests that make up their input, with 20 times as many examples; FUZZ=500 for more
	@scripts/fuzz.sh

attack: ## Attacks on Storlab: random kills, attempts on devices, strangers' files; ATTACK=600 for ten minutes, not an hour
	@scripts/attack.sh

lint: ## Formatting, lint, strict types, import contracts: Rust, Python, shell
	@scripts/lint.sh

docs: ## The documentation as pages, in build/site; nothing in them is fetched
	@scripts/docs.sh

bench: ## Storlab's own speed, beside its peers'
	@scripts/bench.sh

agent: ## Build the agent, the static program that runs on nodes
	@scripts/agent.sh

image: ## Build what virtual machines boot, with ZFS; WITH= builds it without
	@scripts/image.sh

zts-sanity: ## The whole of the ZFS Test Suite's sanity.run in two guests: about an hour where they are emulated
	@scripts/zts.sh

zts-subset: ## Eleven groups of the ZFS Test Suite by Storlab and by its own runner, compared; TAGS= names others
	@scripts/zts-subset.sh

clean: ## Remove what was built or downloaded here; runs/ stays
	@scripts/clean.sh
