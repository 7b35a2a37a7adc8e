# stacksaga: one PostgreSQL extension and one daemon, built and tested from here.
#
#   make              build the extension            make install [DESTDIR=...]   install it
#                     (PCH=no: without precompiled headers)
#   make demo         transfers between two banks    make test                    the tests that guard a promise
#   make test-all     every test there is            make quick [ROOM=outbox]     behind an edit: lint, unit, regress,
#                                                    isolation, or of these what the README of a room names
#   make unit | regress | isolation | property | tap | docs | examples | lint | model | sim | truth  one part of the tests
#   make chaos        everything attacked for an hour; CHAOS_SECONDS, CHAOS_SEED
#   make chaos-heavy  heavy runs of single tests, many minutes each
#   make proof        the long runs once more, and docs/proof.md from what they report: hours
#   make mutants      plants bugs one at a time; each must be caught by a test
#   make coordinator  build the daemon               make clean                   remove what was built
#   make man          the daemon's manual page, build/stacksaga-coordinator.1
#   make install-coordinator [DESTDIR=... COORDINATOR_PREFIX=/usr/local]  the daemon, unit, manual page, completion, sample settings
#   make screenshots  the pictures of the page in docs/images, by a browser without a screen
#   make bench        how fast, compared with what
#   make dist         release archives of the commit, in build/
#   make test-packages  Debian packages and the images, built and used in root folders of their own: as root
#   make release-check  what has to pass before a release, and what blocks it
#   make crash-points  the server ended at every crash point of the source; CRASH_POINTS=OPTIONS
#   make sweep        hot calls at many loads: fails where more clients or rows make one slow; SWEEP=OPTIONS
#
# demo and test install what they need and start private servers; they work before PostgreSQL is there.

EXTENSION  = extension/stacksaga
EXTVERSION := $(shell sed -n "s/^default_version *= *'\(.*\)'/\1/p" extension/stacksaga.control)
OBJS       := $(patsubst %.cpp,%.o,$(sort $(wildcard $(foreach level,* */* */*/*,extension/core/$(level).cpp extension/pg/$(level).cpp extension/src/$(level).cpp))))
MODULE_big := $(if $(OBJS),stacksaga)

# What only tests call, with copies of pg/: never installed beside the extension.
TESTING      := test/module/stacksaga_testing.so
TESTING_OBJS := $(patsubst %.cpp,%.o,$(sort $(wildcard test/module/*.cpp)))

# The folders are prerequisites too: a file that is removed changes the script as one that is edited.
SQL_FOLDERS := $(wildcard $(addprefix extension/sql/,tables functions views privileges install))
SQL_PARTS   := $(foreach folder,$(SQL_FOLDERS),$(sort $(wildcard $(folder)/*.sql)))
DATA_built  = extension/stacksaga--$(EXTVERSION).sql $(UPDATES)
# Each version that a file of extension/sql/upgrade leads away from is updated to this one in one script.
UPGRADES    := $(wildcard extension/sql/upgrade/*--*.sql)
UPDATES     := $(patsubst %,extension/stacksaga--%--$(EXTVERSION).sql,$(foreach step,$(notdir $(UPGRADES)),$(firstword $(subst --, ,$(step)))))

# For `make installcheck` against a server of one's own; the targets below use private servers.
# What these print names the superuser postgres; OTHER_SUPERUSER=yes leaves them out, as where a package is built, and
# those that want the tests' own module: there the server has a dynamic_library_path already, to the package's files.
NAMES_POSTGRES := define_versions outbox_alter parked_sagas saga_handlers saga_redact schedule
WANTS_MODULE   := ring_hand_over ring_ownership
REGRESS        := $(filter-out $(if $(OTHER_SUPERUSER),$(NAMES_POSTGRES) $(WANTS_MODULE)),$(patsubst sql/%.sql,%,$(sort $(wildcard sql/*.sql))))
REGRESS_OPTS   = --load-extension=stacksaga
ISOLATION      := $(patsubst test/isolation/specs/%.spec,%,$(sort $(wildcard test/isolation/specs/*.spec)))
ISOLATION_OPTS = --inputdir=test/isolation --outputdir=test/isolation --load-extension=stacksaga \
                 --launcher=test/tools/isolation.pl
PROVE_TESTS    := $(sort $(wildcard test/tap/*.pl))
PROVE_FLAGS    += -I test/tap/lib
TAP_TESTS      := $(if $(PROVE_TESTS),1)
EXTRA_CLEAN    = $(OBJS:.o=.d) $(TESTING_OBJS) $(TESTING_OBJS:.o=.d) $(TESTING) build docs/examples/*/node_modules test/examples/node_modules results regression.diffs regression.out tmp_check \
                 test/isolation/results test/isolation/regression.diffs test/isolation/regression.out

PG_CONFIG  ?= pg_config
# no: without precompiled headers.
PCH        ?= yes
PG_CPPFLAGS = -isystem $(shell $(PG_CONFIG) --includedir-server) -Iextension
ifdef STACKSAGA_CRASH_POINTS
# For test/tools/crash-points, which builds a copy of the tree with it.
PG_CPPFLAGS += -DSTACKSAGA_CRASH_POINTS
endif
PG_CXXFLAGS = -std=c++20 -fno-exceptions -fno-rtti -fno-threadsafe-statics -Wall -Wextra -Wshadow \
              -MMD -MP
SHLIB_LINK  = -Wl,--version-script=extension/stacksaga.map
ifeq ($(CI),true)
# Elsewhere a newer compiler's new warning must not break a user's build.
PG_CXXFLAGS += -Werror -DUSE_ASSERT_CHECKING=1
CMAKE_FLAGS += -DSTACKSAGA_WERROR=ON
endif
CMAKE_FLAGS += -DCMAKE_DISABLE_PRECOMPILE_HEADERS=$(if $(filter yes,$(PCH)),OFF,ON)
# Bitcode would need a clang of one certain version and bring nothing to functions that call SPI.
override with_llvm = no

PG_MAJOR := $(shell $(PG_CONFIG) --version 2>/dev/null | sed -n 's/^PostgreSQL \([0-9]*\).*/\1/p')
PGXS     := $(shell $(PG_CONFIG) --pgxs 2>/dev/null)
PG_HEADER := $(if $(PG_MAJOR),$(wildcard $(shell $(PG_CONFIG) --includedir-server)/postgres.h))

.DEFAULT_GOAL := all

ifneq ($(and $(PG_HEADER),$(wildcard $(PGXS))),)
ifeq ($(shell test $(PG_MAJOR) -ge 14 && echo yes),)
$(error stacksaga needs PostgreSQL 14 or later; $(PG_CONFIG) is of $(PG_MAJOR))
endif
include $(PGXS)
else
all install installcheck clean:
	@echo "$(PG_CONFIG) finds no PostgreSQL server headers: run 'make packages', or install" \
	      "postgresql-server-dev-15, or say where they are with PG_CONFIG=/path/to/pg_config" >&2
	@exit 1
endif

# PGXS as Debian ships it tracks no header; the compiler writes down what each object includes. What else an object
# depends on is the compiler and its flags.
$(OBJS) $(TESTING_OBJS): build/made_by
# It alone says the version.
extension/src/definition/explain.o: extension/stacksaga.control
extension/src/definition/explain.o: private override CPPFLAGS += -DSTACKSAGA_VERSION='"$(EXTVERSION)"'
-include $(OBJS:.o=.d)

# Two thirds of what a file of pg/ and src/ took to compile were the headers of PostgreSQL and std: they
# are compiled once.
PCH_HEADER = build/pch/pg.hpp
PCH_MAKE   = $(CXX) $(filter-out -MMD,$(CXXFLAGS)) $(CPPFLAGS) $(TARGET_ARCH) -MD -MT $(PCH_HEADER).gch \
             -MF $(PCH_HEADER).d -x c++-header
ifeq ($(PCH),yes)
PCH_OBJS  := $(filter-out extension/core/%,$(OBJS)) $(TESTING_OBJS)
# ccache wants -fpch-preprocess, which changes nothing else.
$(PCH_OBJS): private override CPPFLAGS += -fpch-preprocess -include $(PCH_HEADER)
$(PCH_OBJS): $(PCH_HEADER).gch
-include $(PCH_HEADER).d
endif
# Moved into place: a compiler may have mapped the old one.
$(PCH_HEADER).gch: build/made_by
	@mkdir -p $(@D)
	@echo '#include "pg/pg.hpp"' > $(PCH_HEADER)
	$(PCH_MAKE) -o $@.new $(PCH_HEADER)
	@mv $@.new $@
always:
build/made_by: always
	@mkdir -p $(@D)
	@{ $(CXX) --version; echo '$(subst ','\'',$(PCH_MAKE))'; } > $@.new
	@if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi

$(if $(MODULE_big),stacksaga.so): extension/stacksaga.map

-include $(TESTING_OBJS:.o=.d)
$(TESTING): $(TESTING_OBJS) $(filter extension/pg/%,$(OBJS)) extension/stacksaga.map
	$(CC) $(CFLAGS) $(CFLAGS_SL) -shared -o $@ $(filter %.o,$^) $(LDFLAGS) $(LDFLAGS_SL) $(SHLIB_LINK)

extension/stacksaga--$(EXTVERSION).sql: $(SQL_FOLDERS) $(SQL_PARTS) extension/stacksaga.control Makefile
	@echo "making $@ of $(words $(SQL_PARTS)) parts"
	@{ printf '%s\n' '\echo Use "CREATE EXTENSION stacksaga" to load this file. \quit'; \
	   cat $(SQL_PARTS) /dev/null | sed 's/^CREATE OR REPLACE /CREATE /'; } > $@.new
	@mv $@.new $@

extension/stacksaga--%--$(EXTVERSION).sql: extension/sql/update.sh $(UPGRADES) $(SQL_FOLDERS) $(SQL_PARTS) extension/stacksaga.control
	@echo "making $@"
	@extension/sql/update.sh $* $(EXTVERSION) >$@.new
	@mv $@.new $@

# A server of one's own finds the module where it was built.
ifndef OTHER_SUPERUSER
installcheck: $(TESTING)
installcheck: export PGOPTIONS := -c dynamic_library_path=$(CURDIR)/$(dir $(TESTING)):$$libdir $(value PGOPTIONS)
endif

.PHONY: packages demo quick test test-all without-pch unit regress isolation property tap docs examples lint model sim truth truth-program mutants \
        chaos proof chaos-heavy chaos-sim chaos-http chaos-outbox chaos-live tidy bench bench-core \
        coordinator man install-coordinator screenshots demo-programs cmake sweep crash-points test-versions \
        dist test-packages release release-check

packages:
	@test/tools/install-packages

demo:
	@test/tools/demo

# Behind an edit. With a ROOM, what the README of that room names.
quick: all
	cmake -S . -B build -G "Unix Makefiles" $(CMAKE_FLAGS) >/dev/null
	$(MAKE) -C build $(if $(ROOM),$(if $(wildcard coordinator/$(ROOM)/README.md),coordinator_test,core_test),core_test coordinator_test)
	@test/tools/quick $(ROOM)

test:
	@test/tools/test

test-all:
	@test/tools/test --all

# Checks that each file compiles without the precompiled header.
without-pch:
	printf '%s\n' $(OBJS:.o=.cpp) | xargs -n 8 -P $$(nproc) $(CXX) $(filter-out -MMD -MP,$(CXXFLAGS)) $(CPPFLAGS) \
	    -DSTACKSAGA_VERSION='"$(EXTVERSION)"' -fsyntax-only

cmake:
	cmake -S . -B build -G "Unix Makefiles" $(CMAKE_FLAGS)
	$(MAKE) -C build

coordinator:
	cmake -S . -B build -G "Unix Makefiles" $(CMAKE_FLAGS)
	$(MAKE) -C build stacksaga-coordinator

man: coordinator
	coordinator/man.sh build/coordinator/stacksaga-coordinator > build/stacksaga-coordinator.1

# Settings that are there stay. PGXS has a prefix of its own.
COORDINATOR_PREFIX ?= /usr/local
install-coordinator: man
	@DESTDIR='$(DESTDIR)' PREFIX='$(COORDINATOR_PREFIX)' coordinator/install.sh build

screenshots: all coordinator
	@test/tools/screenshots

# What the demo runs: the daemon and the demo's own programs, without the tests.
demo-programs: coordinator
	$(MAKE) -C build credit_service transfers

# Not part of `make test`: it takes minutes, and wants the package clang-tidy.
tidy:
	cmake -S . -B build -G "Unix Makefiles" -DCMAKE_EXPORT_COMPILE_COMMANDS=ON $(CMAKE_FLAGS)
	sed -n 's/^ *"file": "\(.*\)".*/\1/p' build/compile_commands.json | \
	    xargs -r -n 1 -P 2 clang-tidy --quiet -p build

unit: cmake
	@test/tools/unit

model:
	@test/tools/model

sim: coordinator
	$(MAKE) -C build stacksaga-sim
	@test/tools/sim

truth-program:
	cmake -S . -B build -G "Unix Makefiles" $(CMAKE_FLAGS)
	$(MAKE) -C build stacksaga-truth

truth: truth-program
	@test/tools/truth

# Not part of `make test`: it builds and tests a hundred times.
mutants: all
	@test/tools/mutants

# An hour of faults of every kind, and the checker, whose own test is part of `make test`.
chaos: all coordinator
	@test/tools/chaos

# docs/proof.md, from the long runs.
proof: all coordinator
	@test/tools/proof

# About a thousand crashes; some of them are part of `make test-all`.
crash-points: all
	@test/tools/crash-points $(CRASH_POINTS)

# Heavy runs, each on its own and for many minutes; not part of `make test`.
CHAOS += chaos-sim chaos-http chaos-outbox chaos-live
chaos-heavy:
	@for run in $(CHAOS); do $(MAKE) $$run || failed="$$failed $$run"; done; \
	    [ -z "$$failed" ] || { echo "failed:$$failed" >&2; exit 1; }

# Ten million messages in order while owners change, handlers fail and the server crashes.
chaos-outbox: all cmake
	@STACKSAGA_MESSAGES=10000000 test/tools/tap test/tap/outbox_order.pl

# Masters, agents and workers of two databases that join, leave, hang and die every second under load.
chaos-live: all coordinator
	@STACKSAGA_LIVE_SECONDS=300 test/tools/tap test/tap/coordinator_live.pl

# A million requests, with the memory that the daemon may not grow by.
chaos-http: all coordinator
	@COORDINATOR_REQUESTS=1000000 test/tools/tap test/tap/coordinator_load.pl

chaos-sim: coordinator
	$(MAKE) -C build stacksaga-sim
	@test/tools/sim --schedules 100000

regress isolation docs examples lint: all
	@test/tools/$@

tap: all cmake
	@test/tools/tap

# A long run of one area: test/tools/property AREA --episodes N, of outbox, keys or ring.
property: all cmake
	@test/tools/property

# `make test` on PostgreSQL 17 and 18, in root folders of other Debian suites: as root.
test-versions:
	@test/tools/versions

# Not part of `make test` either: about a quarter of an hour, as root.
test-packages:
	@test/tools/packages
	@test/tools/container

# What `git archive` makes of the commit, for PGXN and as the source of packages.
dist:
	@test/tools/dist

# All that is published, in build/release: about an hour and a half, as root.
release:
	@test/tools/release $(SUITES)

release-check: all
	@test/tools/release-check

# Not part of `make test`: it takes two hours and wants an idle machine. test/bench/README.md says how.
bench: all
	@test/tools/bench

# An hour or two, on an idle machine; two minutes of it are part of `make test-all`.
sweep: all
	@test/tools/sweep $(SWEEP)

# Not part of `make test`: figures, not verdicts. Wants the package libbenchmark-dev.
bench-core: coordinator
	$(MAKE) -C build core_bench
	build/core_bench
