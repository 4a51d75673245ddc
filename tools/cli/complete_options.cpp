#include "cli/complete_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string>

#include "cli/option_values.hpp"
#include "launch/mpi_launch.hpp"
#include "machine/cards.hpp"
#include "moelane/error.hpp"

namespace moelane::tools {
namespace {

[[noreturn]] void refuse_given(const std::string& flag, const std::string& where,
                               const std::string& transport) {
  throw Error(
      ErrorKind::argument,
      fmt::format("{} is given, allowed is that {} only, not with the transport {}", flag, where, transport));
}

// The transport that `auto` stands for, and the world where a launcher started this process.
void find_world(Options& o) {
  const auto launched = o.command == Command::plan ? std::nullopt : rank_under_mpirun();
  if (o.transport == "auto") {
    // The one that can do what was asked for.
    const bool cards =
        o.command != Command::plan && !o.config.force_puts && !o.baseline && cards_from_outside() > 0;
    o.transport = launched ? "mpi" : cards ? "peer" : "shm";
  }
  const char *size = std::getenv("WORLD_SIZE"), *rank = std::getenv("RANK");
  const auto join = [&o](const char* variable, int ranks) {
    if (o.ranks_given && o.ranks != ranks) {
      refuse("--ranks", std::to_string(o.ranks),
             fmt::format("the {} of {} that the launcher set", variable, ranks));
    }
    o.ranks = ranks;
    o.launched = true;
  };
  if (o.over_mpi()) {
    if (launched) join("size", launched->size);
    o.reports = !launched || launched->rank == 0;
  } else if (o.transport != "threads" && size != nullptr && rank != nullptr) {
    join("WORLD_SIZE", whole_number("WORLD_SIZE", std::string(size), 1, 1024));
    o.reports = std::string(rank) == "0";
  }
}

// Refuses what the command or the transport has no use for.
void check_given(const Options& o) {
  const Config& c = o.config;
  if (o.graph && !o.on_cards()) refuse_given("--graph", "on a GPU", o.transport);
  if (c.num_sms > 0 && !o.on_cards()) refuse_given("--num-sms", "on a GPU", o.transport);
  if (c.force_puts && o.on_cards()) refuse_given("--force-puts", "on CPUs", o.transport);
  if (o.baseline && o.on_cards()) refuse_given("--baseline", "on CPUs", o.transport);
  if (o.processes && o.transport == "threads") refuse_given("--processes", "with processes", o.transport);
  if (o.command != Command::run) {
    const char* said = o.injection.rank >= 0 ? "--inject" : o.trace.empty() ? nullptr : "--trace";
    if (o.accumulate && o.command == Command::bench) said = "--accumulate";
    if (said != nullptr) {
      throw Error(ErrorKind::argument,
                  fmt::format("{} is given, allowed is that with moelane run only", said));
    }
  }
}

// Rows that no routing needs more of: every token of every group for one expert (as often as it can be
// repeated), or for one rank, where it takes at most topk rows and each expert at most alignment - 1 more.
std::int32_t largest_capacity(const Options& o) {
  const Config& c = o.config;
  const long long tokens = static_cast<long long>(o.ranks / c.tp_size) * c.max_tokens;
  const int repeats = (c.topk + c.experts - 1) / c.experts;
  long long rows = tokens * repeats;
  if (c.layout == Layout::contiguous) {
    rows = tokens * c.topk + static_cast<long long>(c.experts) * (c.alignment - 1);
  } else if (c.layout == Layout::ranked) {
    rows = tokens;
  }
  return static_cast<std::int32_t>(std::min<long long>(rows, std::numeric_limits<std::int32_t>::max()));
}

}  // namespace

void complete_options(Options& o, const UnfinishedOptions& unfinished) {
  Config& c = o.config;
  find_world(o);
  check_given(o);
  if (o.command == Command::bench && o.on_cards()) o.graph = true;
  if (!o.json.empty() && o.json == o.trace) refuse("--trace", o.trace, "another file than that of --json");
  c.max_tokens = unfinished.max_tokens.value_or(std::max(o.tokens.high, 1));
  if (o.tokens.high > c.max_tokens) {
    refuse("--tokens",
           o.tokens.low == o.tokens.high ? std::to_string(o.tokens.high)
                                         : fmt::format("{}..{}", o.tokens.low, o.tokens.high),
           fmt::format("0 to the --max-tokens of {}", c.max_tokens));
  }
  if (c.dtype == DType::fp8_e4m3 && unfinished.scale_block > 0) {
    c.scale_columns = (c.hidden + unfinished.scale_block - 1) / unfinished.scale_block;
    c.scale_bytes = 4;
  }
  if (o.split && c.way == Way::direct) refuse("--calls", "split", "whole with --way direct");
  if (o.injection.rank >= o.ranks) {
    refuse("RANK of --inject", std::to_string(o.injection.rank), fmt::format("0 to {}", o.ranks - 1));
  }
  if (o.injection.step > o.steps) {
    refuse("STEP of --inject", std::to_string(o.injection.step),
           fmt::format("1 to the --steps of {}", o.steps));
  }
  check_config(c, o.ranks);
  if (o.capacity == 0) o.capacity = largest_capacity(o);
}

}  // namespace moelane::tools
