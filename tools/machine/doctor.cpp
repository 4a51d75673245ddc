#include "machine/doctor.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <string>
#include <string_view>
#include <utility>

#include "launch/run_ranks.hpp"
#include "machine/gpu_facts.hpp"
#include "machine/host_facts.hpp"
#include "machine/print_facts.hpp"
#include "machine/software.hpp"
#include "report/output_file.hpp"
#include "routing/routing.hpp"
#include "run/run_rank.hpp"

namespace moelane::tools {
namespace {

using nlohmann::json;

constexpr unsigned kSeconds = 60;

// Everything here is bounded; should the system itself not answer, this ends it.
void too_long(int) {
  constexpr std::string_view sentence =
      "moelane: doctor did not end within 60 seconds: some call of the system hangs\n";
  const ssize_t written = write(STDERR_FILENO, sentence.data(), sentence.size());
  (void)written;
  _exit(3);
}

json verdict(bool works, const std::string& why) { return {{"works", works}, {"why", why}}; }

// A small job on two ranks, checked byte for byte like any other.
json try_out(const std::string& transport) {
  Options o;
  o.ranks = 2;
  o.transport = transport;
  o.quiet = true;
  o.steps = 2;
  o.tokens = {4, 4};
  o.capacity = 8;
  o.config.experts = 4;
  o.config.topk = 2;
  o.config.hidden = 64;
  o.config.max_tokens = 4;
  o.config.timeout = 5;
  try {
    const auto routing = open_routing("uniform", o.config.experts, o.config.topk, o.seed);
    const auto reports = run_ranks(o, 0, [&](World world, const Arena&, RankReport& report) {
      run_rank(o, *routing, std::move(world), Arena{}, report);
    });
    for (const RankReport& report : reports) {
      if (report.exit_code != 0) return verdict(false, report.sentence);
    }
    return verdict(true, "two ranks exchanged two steps, every byte checked");
  } catch (const std::exception& error) {
    return verdict(false, error.what());
  }
}

json try_peer(const json& gpu, const std::string& no_gpu) {
  if (!gpu.at("compiled").get<bool>()) {
    return verdict(false, "this build has no peer transport; -DMOELANE_CUDA=ON makes one that has" + no_gpu);
  }
  return gpu.at("cards").empty() ? verdict(false, gpu.at("why")) : try_out("peer");
}

json transports_json(const json& devices, const json& gpus, const json& software) {
  const bool gpu = devices.at("gpus") > 0;
  const std::string no_gpu = gpu ? "" : "; there is no NVIDIA GPU here";
  const std::string no_mpi = software.at("mpi").empty() ? "; there is no mpirun in PATH" : "";
  const std::string no_library = software.at("nvshmem").is_null() ? "; no NVSHMEM library is found" : "";
  const bool network = !devices.at("rdma").empty() || !devices.at("efa").empty();
  json out;
  out["threads"] = try_out("threads");
  out["shm"] = try_out("shm");
  out["mpi"] = verdict(false, "this build has no mpi transport" + no_mpi);
  out["peer"] = try_peer(gpus, no_gpu);
  out["nvshmem"] = verdict(false, "this build has no nvshmem transport" + no_gpu + no_library +
                                      (network ? "" : "; there is no RDMA network"));
  return out;
}

}  // namespace

int doctor(const Options& options) {
  signal(SIGALRM, too_long);
  alarm(kSeconds);
  check_writable("--json", options.json);
  json result = {{"cpu", cpu_facts()},        {"memory", memory_facts()}, {"kernel", kernel_facts()},
                 {"devices", device_facts()}, {"gpu", gpu_facts()},       {"software", software_facts()}};
  result["transports"] = transports_json(result.at("devices"), result.at("gpu"), result.at("software"));
  bool any = false;
  for (const auto& [name, transport] : result.at("transports").items()) any = any || transport.at("works");
  result["exit_code"] = any ? 0 : 3;
  if (options.json != "-") print_facts(result);
  if (!options.json.empty()) write_json("--json", options.json, result);
  return any ? 0 : 3;
}

}  // namespace moelane::tools
