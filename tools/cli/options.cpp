#include "cli/options.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <limits>
#include <map>

#include "cli/option_values.hpp"
#include "launch/mpi_launch.hpp"
#include "machine/cards.hpp"
#include "moelane/error.hpp"
#include "routing/routing_input.hpp"

namespace moelane::tools {
namespace {

template <class V>
V choice(const std::string& flag, const std::string& text, const std::map<std::string, V>& values) {
  const auto found = values.find(text);
  if (found != values.end()) return found->second;
  std::string allowed;
  for (const auto& [name, value] : values) allowed += (allowed.empty() ? "" : ", ") + name;
  refuse(flag, text, "one of " + allowed);
}

const std::map<std::string, DType> kAnswerTypes = {
    {"bf16", DType::bf16}, {"fp16", DType::fp16}, {"fp32", DType::fp32}};
const std::map<std::string, DType> kRowTypes = {
    {"fp8_e4m3", DType::fp8_e4m3}, {"bf16", DType::bf16}, {"fp16", DType::fp16}, {"fp32", DType::fp32}};

std::string file_name(const std::string& flag, const std::string& text) {
  if (text.empty()) refuse(flag, text, "a file to write to, or - for standard output");
  return text;
}

void add_json_option(CLI::App& app, Options& o) {
  app.add_option_function<std::string>(
         "--json", [&](const std::string& v) { o.json = file_name("--json", v); },
         "write the result to FILE, - for standard output")
      ->type_name("FILE");
}

// What cannot be put into Options at once.
struct Extras {
  int scale_block = 128;
  std::optional<int> max_tokens;
};

void add_job_options(CLI::App& app, Options& o, Extras& extra) {
  Config& c = o.config;
  const auto text = [&app](const std::string& flag, const std::string& help, const std::string& shown,
                           std::function<void(const std::string&)> take) {
    app.add_option_function<std::string>(flag, std::move(take), help)->type_name(shown);
  };
  const auto number = [&](const std::string& flag, const std::string& help, int* to, int low, int high) {
    text(flag, help + fmt::format(" [{}]", *to), "N",
         [=](const std::string& v) { *to = whole(flag, v, low, high); });
  };
  text("--ranks", "ranks in the world [8]", "N", [&](const std::string& v) {
    o.ranks = whole("--ranks", v, 1, 1024);
    o.ranks_given = true;
  });
  number("--tp", "ranks of a DP group, which hold the same tokens", &c.tp_size, 1, 1024);
  number("--experts", "experts in the world", &c.experts, 1, 65536);
  number("--topk", "experts of a token", &c.topk, 1, 32);
  number("--hidden", "elements of a row", &c.hidden, 1, 1 << 20);
  text("--tokens", "tokens of a group, or A..B to draw them for each group and step [128]", "N|A..B",
       [&](const std::string& v) { o.tokens = token_range("--tokens", v); });
  text("--max-tokens", "the most tokens a group may bring [the most of --tokens]", "N",
       [&](const std::string& v) { extra.max_tokens = whole("--max-tokens", v, 1, (1 << 22) - 1); });
  text("--dtype", "of dispatched rows: fp8_e4m3, bf16, fp16, fp32 [fp8_e4m3]", "TYPE",
       [&](const std::string& v) { c.dtype = choice("--dtype", v, kRowTypes); });
  number("--scale-block", "elements of an fp8 row that share a scale; 0: no scales", &extra.scale_block, 0,
         1 << 20);
  text("--combine-dtype", "of answers and output: bf16, fp16, fp32 [bf16]", "TYPE",
       [&](const std::string& v) {
         c.combine_dtype = c.out_dtype = choice("--combine-dtype", v, kAnswerTypes);
       });
  text("--layout", "of dispatched rows: padded, contiguous, ranked [padded]", "NAME",
       [&](const std::string& v) {
         c.layout = choice<Layout>(
             "--layout", v,
             {{"padded", Layout::padded}, {"contiguous", Layout::contiguous}, {"ranked", Layout::ranked}});
       });
  number("--alignment", "contiguous layout: each expert starts at a multiple of this", &c.alignment, 1,
         65536);
  text("--routing", "uniform, zipf:S, or a file: safetensors, ESFT text, JSON of expert counts [uniform]",
       "SPEC", [&](const std::string& v) { o.routing = v; });
  text("--placement", "contiguous, or a JSON file with the rank of each expert [contiguous]", "SPEC",
       [&](const std::string& v) { o.placement = v; });
  text("--transport",
       "auto, threads, shm, mpi, peer (GPUs) [auto: mpi under mpirun, else peer where there is a GPU, else "
       "shm]",
       "NAME", [&](const std::string& v) {
         o.transport = choice<std::string>(
             "--transport", v,
             {{"auto", "auto"}, {"threads", "threads"}, {"shm", "shm"}, {"mpi", "mpi"}, {"peer", "peer"}});
       });
  text("--way", "auto, put, direct [auto]", "NAME", [&](const std::string& v) {
    c.way = choice<Way>("--way", v, {{"auto", Way::automatic}, {"put", Way::put}, {"direct", Way::direct}});
  });
  text("--calls", "whole, split [whole]", "KIND", [&](const std::string& v) {
    o.split = choice<bool>("--calls", v, {{"whole", false}, {"split", true}});
  });
  text(
      "--capacity", "rows of each expert (padded) or of a rank [what any routing may need]", "N",
      [&](const std::string& v) { o.capacity = whole("--capacity", v, 1, std::numeric_limits<int>::max()); });
  app.add_flag("--accumulate", o.accumulate, "add to what the output holds");
  app.add_flag("--partial-sums", c.partial_sums, "sum at the expert's rank, send bf16 sums (other rounding)");
  app.add_flag("--force-puts", c.force_puts, "send everything by puts, as over a network");
  number("--steps", "steps to do", &o.steps, 1, 1 << 30);
  number("--in-flight", "lanes", &c.in_flight, 1, 64);
  text("--timeout", "seconds a call may wait for its peers, or inf [30]", "SECONDS",
       [&](const std::string& v) { c.timeout = positive("--timeout", v, "seconds", true); });
  text("--inject", "a fault: die:RANK@STEP or stall:RANK@STEP:SECONDS", "FAULT",
       [&](const std::string& v) { o.fault = fault_of(v); });
  app.add_flag("--processes", o.processes, "one process a rank (shm always has; peer has threads otherwise)");
  text("--num-sms", "peer: multiprocessors that a call may use [its rank's share of the GPU]", "N",
       [&](const std::string& v) { c.num_sms = whole("--num-sms", v, 1, 1024); });
  app.add_flag("--graph", o.graph,
               "peer: capture the calls in CUDA graphs and replay them (bench always does)");
  text("--seed", "of all random data [1]", "N", [&](const std::string& v) {
    o.seed = whole<std::uint64_t>("--seed", v, 0, std::numeric_limits<std::uint64_t>::max());
  });
  text("--trace", "write what each rank did when to FILE, for Perfetto", "FILE",
       [&](const std::string& v) { o.trace = file_name("--trace", v); });
  app.add_flag("--quiet", o.quiet, "print nothing but errors");
}

// What only bench or only plan is told.
void add_own_options(CLI::App& bench, CLI::App& plan, Options& o) {
  bench.add_flag("--baseline", o.baseline, "time the standard all-to-all ways beside it");
  bench
      .add_option_function<std::string>(
          "--warmup", [&](const std::string& v) { o.warmup = whole("--warmup", v, 0, 1 << 20); },
          "steps before the timed ones [2]")
      ->type_name("N");
  const auto speed = [&plan](const std::string& flag, const std::string& help, double* to) {
    plan.add_option_function<std::string>(
            flag, [=](const std::string& v) { *to = positive(flag, v, "GB/s", false); },
            help + fmt::format(" [{}]", *to))
        ->type_name("GB/s");
  };
  speed("--memory-gbs", "memory bandwidth of a rank, reads and writes together", &o.memory_gbs);
  speed("--link-gbs", "bandwidth of a rank's link to the others, each way", &o.link_gbs);
}

[[noreturn]] void refuse_given(const std::string& flag, const std::string& where,
                               const std::string& transport) {
  throw Error(
      ErrorKind::argument,
      fmt::format("{} is given, allowed is that {} only, not with the transport {}", flag, where, transport));
}

// The transport that `auto` stands for, and this process's rank where a launcher started it.
void find_place(Options& o) {
  const auto place = o.command == Command::plan ? std::nullopt : mpi_place();
  if (o.transport == "auto") {
    // The one that can do what was asked for.
    const bool cards =
        o.command != Command::plan && !o.config.force_puts && !o.baseline && cards_from_outside() > 0;
    o.transport = place ? "mpi" : cards ? "peer" : "shm";
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
    if (place) join("size", place->size);
    o.reports = !place || place->rank == 0;
  } else if (o.transport != "threads" && size != nullptr && rank != nullptr) {
    join("WORLD_SIZE", whole("WORLD_SIZE", std::string(size), 1, 1024));
    o.reports = std::string(rank) == "0";
  }
}

// Fills in what follows from the rest, and checks what no single flag shows.
void complete(Options& o, const Extras& extra) {
  Config& c = o.config;
  find_place(o);
  if (o.graph && !o.on_cards()) refuse_given("--graph", "on a GPU", o.transport);
  if (c.num_sms > 0 && !o.on_cards()) refuse_given("--num-sms", "on a GPU", o.transport);
  if (c.force_puts && o.on_cards()) refuse_given("--force-puts", "on CPUs", o.transport);
  if (o.baseline && o.on_cards()) refuse_given("--baseline", "on CPUs", o.transport);
  if (o.processes && o.transport == "threads") refuse_given("--processes", "with processes", o.transport);
  if (o.command == Command::bench && o.on_cards()) o.graph = true;
  if (o.command != Command::run) {
    const char* said = o.fault.rank >= 0 ? "--inject" : o.trace.empty() ? nullptr : "--trace";
    if (o.accumulate && o.command == Command::bench) said = "--accumulate";
    if (said != nullptr) {
      throw Error(ErrorKind::argument,
                  fmt::format("{} is given, allowed is that with moelane run only", said));
    }
  }
  if (!o.json.empty() && o.json == o.trace) refuse("--trace", o.trace, "another file than that of --json");
  c.max_tokens = extra.max_tokens.value_or(std::max(o.tokens.high, 1));
  if (o.tokens.high > c.max_tokens) {
    refuse("--tokens",
           o.tokens.low == o.tokens.high ? std::to_string(o.tokens.high)
                                         : fmt::format("{}..{}", o.tokens.low, o.tokens.high),
           fmt::format("0 to the --max-tokens of {}", c.max_tokens));
  }
  if (c.dtype == DType::fp8_e4m3 && extra.scale_block > 0) {
    c.scale_columns = (c.hidden + extra.scale_block - 1) / extra.scale_block;
    c.scale_bytes = 4;
  }
  if (o.split && c.way == Way::direct) refuse("--calls", "split", "whole with --way direct");
  if (o.fault.rank >= o.ranks) {
    refuse("RANK of --inject", std::to_string(o.fault.rank), fmt::format("0 to {}", o.ranks - 1));
  }
  if (o.fault.step > o.steps) {
    refuse("STEP of --inject", std::to_string(o.fault.step), fmt::format("1 to the --steps of {}", o.steps));
  }
  check_config(c, o.ranks);
  if (o.capacity == 0) {
    // No routing needs more: every token of every group for one expert (as often as it can be repeated), or
    // for one rank, where it takes at most topk rows and each expert at most alignment - 1 more.
    const long long tokens = static_cast<long long>(o.ranks / c.tp_size) * c.max_tokens;
    const int repeats = (c.topk + c.experts - 1) / c.experts;
    long long rows = tokens * repeats;
    if (c.layout == Layout::contiguous) {
      rows = tokens * c.topk + static_cast<long long>(c.experts) * (c.alignment - 1);
    } else if (c.layout == Layout::ranked) {
      rows = tokens;
    }
    o.capacity =
        static_cast<std::int32_t>(std::min<long long>(rows, std::numeric_limits<std::int32_t>::max()));
  }
}

}  // namespace

std::optional<Options> parse_options(int argc, char** argv) {
  Options o;
  Extras extra;
  o.config.experts = 256;
  o.config.topk = 8;
  o.config.hidden = 7168;
  o.config.dtype = DType::fp8_e4m3;

  CLI::App app("Moves mixture-of-experts tokens to their experts and back, and checks every byte.",
               "moelane");
  app.set_version_flag("--version", "moelane " MOELANE_VERSION);
  app.require_subcommand(1);
  CLI::App* run =
      app.add_subcommand("run", "do the job on this machine and check it against a plain reference");
  CLI::App* bench = app.add_subcommand("bench", "time it, beside the floor of the memory");
  CLI::App* plan =
      app.add_subcommand("plan", "heap sizes, bytes on each link and floors, before anything is allocated");
  CLI::App* doctor = app.add_subcommand("doctor", "what this machine has and which transports will work");
  for (CLI::App* job : {run, bench, plan}) add_job_options(*job, o, extra);
  for (CLI::App* job : {run, bench, plan, doctor}) add_json_option(*job, o);
  add_own_options(*bench, *plan, o);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& e) {
    app.exit(e);
    return std::nullopt;
  } catch (const CLI::CallForVersion& e) {
    app.exit(e);
    return std::nullopt;
  } catch (const CLI::ParseError& e) {
    // The parser quotes arguments as they are; a line break in one would make two lines of the sentence.
    std::string what = e.what();
    std::replace_if(
        what.begin(), what.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
    const auto jobs = app.get_subcommands();
    throw Error(ErrorKind::argument, fmt::format("{}; moelane {}--help says what is allowed", what,
                                                 jobs.empty() ? "" : jobs.front()->get_name() + " "));
  }
  if (*doctor) {
    o.command = Command::doctor;
    return o;
  }
  o.command = *bench ? Command::bench : *plan ? Command::plan : Command::run;
  if (*bench && bench->count("--steps") == 0) o.steps = 20;
  complete(o, extra);
  return o;
}

}  // namespace moelane::tools
