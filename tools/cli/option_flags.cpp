#include "cli/option_flags.hpp"

#include <fmt/format.h>

#include <functional>
#include <limits>
#include <map>
#include <string>
#include <utility>

#include "cli/option_values.hpp"

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

}  // namespace

void add_json_option(CLI::App& app, Options& o) {
  app.add_option_function<std::string>(
         "--json", [&](const std::string& v) { o.json = file_name("--json", v); },
         "write the result to FILE, - for standard output")
      ->type_name("FILE");
}

void add_job_options(CLI::App& app, Options& o, UnfinishedOptions& extra) {
  Config& c = o.config;
  const auto text = [&app](const std::string& flag, const std::string& help, const std::string& shown,
                           std::function<void(const std::string&)> take) {
    app.add_option_function<std::string>(flag, std::move(take), help)->type_name(shown);
  };
  const auto number = [&](const std::string& flag, const std::string& help, int* to, int low, int high) {
    text(flag, help + fmt::format(" [{}]", *to), "N",
         [=](const std::string& v) { *to = whole_number(flag, v, low, high); });
  };
  text("--ranks", "ranks in the world [8]", "N", [&](const std::string& v) {
    o.ranks = whole_number("--ranks", v, 1, 1024);
    o.ranks_given = true;
  });
  number("--tp", "ranks of a DP group, which hold the same tokens", &c.tp_size, 1, 1024);
  number("--experts", "experts in the world", &c.experts, 1, 65536);
  number("--topk", "experts of a token", &c.topk, 1, 32);
  number("--hidden", "elements of a row", &c.hidden, 1, 1 << 20);
  text("--tokens", "tokens of a group, or A..B to draw them for each group and step [128]", "N|A..B",
       [&](const std::string& v) { o.tokens = token_range("--tokens", v); });
  text("--max-tokens", "the most tokens a group may bring [the most of --tokens]", "N",
       [&](const std::string& v) { extra.max_tokens = whole_number("--max-tokens", v, 1, (1 << 22) - 1); });
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
  text("--capacity", "rows of each expert (padded) or of a rank [what any routing may need]", "N",
       [&](const std::string& v) {
         o.capacity = whole_number("--capacity", v, 1, std::numeric_limits<int>::max());
       });
  app.add_flag("--accumulate", o.accumulate, "add to what the output holds");
  app.add_flag("--partial-sums", c.partial_sums, "sum at the expert's rank, send bf16 sums (other rounding)");
  app.add_flag("--force-puts", c.force_puts, "send everything by puts, as over a network");
  number("--steps", "steps to do", &o.steps, 1, 1 << 30);
  number("--in-flight", "lanes", &c.in_flight, 1, 64);
  text("--timeout", "seconds a call may wait for its peers, or inf [30]", "SECONDS",
       [&](const std::string& v) { c.timeout = positive_number("--timeout", v, "seconds", true); });
  text("--inject", "a fault: die:RANK@STEP or stall:RANK@STEP:SECONDS", "FAULT",
       [&](const std::string& v) { o.injection = injection_of(v); });
  app.add_flag("--processes", o.processes, "one process a rank (shm always has; peer has threads otherwise)");
  text("--num-sms", "peer: multiprocessors that a call may use [its rank's share of the GPU]", "N",
       [&](const std::string& v) { c.num_sms = whole_number("--num-sms", v, 1, 1024); });
  app.add_flag("--graph", o.graph,
               "peer: capture the calls in CUDA graphs and replay them (bench always does)");
  text("--seed", "of all random data [1]", "N", [&](const std::string& v) {
    o.seed = whole_number<std::uint64_t>("--seed", v, 0, std::numeric_limits<std::uint64_t>::max());
  });
  text("--trace", "write what each rank did when to FILE, for Perfetto", "FILE",
       [&](const std::string& v) { o.trace = file_name("--trace", v); });
  app.add_flag("--quiet", o.quiet, "print nothing but errors");
}

void add_own_options(CLI::App& bench, CLI::App& plan, Options& o) {
  bench.add_flag("--baseline", o.baseline, "time the standard all-to-all ways beside it");
  bench
      .add_option_function<std::string>(
          "--warmup", [&](const std::string& v) { o.warmup = whole_number("--warmup", v, 0, 1 << 20); },
          "steps before the timed ones [2]")
      ->type_name("N");
  const auto speed = [&plan](const std::string& flag, const std::string& help, double* to) {
    plan.add_option_function<std::string>(
            flag, [=](const std::string& v) { *to = positive_number(flag, v, "GB/s", false); },
            help + fmt::format(" [{}]", *to))
        ->type_name("GB/s");
  };
  speed("--memory-gbs", "memory bandwidth of a rank, reads and writes together", &o.memory_gbs);
  speed("--link-gbs", "bandwidth of a rank's link to the others, each way", &o.link_gbs);
}

}  // namespace moelane::tools
