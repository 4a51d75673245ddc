#include "machine/print_facts.hpp"

#include <fmt/format.h>

#include <string>

#include "cli/text.hpp"

namespace moelane::tools {
namespace {

using nlohmann::json;

std::string text(const json& value) {
  if (value.is_null()) return "unknown";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

std::string bytes_text(const json& value, const char* otherwise) {
  return value.is_number() ? amount(value.get<double>()) : otherwise;
}

std::string list(const json& names) {
  std::string out;
  for (const json& name : names) out += (out.empty() ? "" : ", ") + name.get<std::string>();
  return out.empty() ? "none" : out;
}

std::string access_text(const json& access) {
  std::string missing;
  for (std::size_t from = 0; from < access.size(); ++from) {
    for (std::size_t to = 0; to < access.size(); ++to) {
      if (!access[from][to].get<bool>()) missing += fmt::format(", {} to {}", from, to);
    }
  }
  return missing.empty() ? "between all cards" : "missing: " + missing.substr(2);
}

template <class Line>
void print_gpu(const json& gpu, const Line& line) {
  line("cuda", !gpu.at("compiled").get<bool>() ? "this build has none"
               : gpu.at("driver").is_null()
                   ? fmt::format("this build is for {}; there is no driver", text(gpu.at("runtime")))
                   : fmt::format("this build is for {}, the driver for {}", text(gpu.at("runtime")),
                                 text(gpu.at("driver"))));
  const json& cards = gpu.at("cards");
  for (std::size_t i = 0; i < cards.size(); ++i) {
    const json& card = cards[i];
    line(fmt::format("card {}", i).c_str(),
         card.contains("error")
             ? text(card.at("error"))
             : fmt::format("{}, {} multiprocessors, {} of {} free, compute capability {}, {}",
                           text(card.at("name")), text(card.at("multiprocessors")),
                           bytes_text(card.at("free"), "unknown"), bytes_text(card.at("memory"), "unknown"),
                           text(card.at("capability")), text(card.at("bus"))));
  }
  if (cards.size() > 1) line("peer access", access_text(gpu.at("peer_access")));
  const json& mps = gpu.at("mps");
  line("mps",
       fmt::format("{} in {}", mps.at("runs").get<bool>() ? "runs" : "does not run", text(mps.at("folder"))));
}

}  // namespace

void print_facts(const json& r) {
  const json &cpu = r.at("cpu"), &memory = r.at("memory"), &kernel = r.at("kernel"),
             &devices = r.at("devices"), &software = r.at("software");
  const auto line = [](const char* name, const std::string& value) {
    fmt::print("  {:<12} {}\n", name, value);
  };
  fmt::print("moelane doctor: this machine\n");
  line("cpu", fmt::format("{}; {} kernels", text(cpu.at("model")), text(cpu.at("instructions"))));
  line("cores",
       fmt::format("{} of {} allowed{}, {} NUMA nodes, last cache {}", text(cpu.at("cores_allowed")),
                   text(cpu.at("cores_online")),
                   cpu.at("cores_quota").is_null() ? ""
                                                   : fmt::format(", time of {:g} by the control group",
                                                                 cpu.at("cores_quota").get<double>()),
                   text(cpu.at("numa_nodes")), bytes_text(cpu.at("last_level_cache"), "unknown")));
  line("memory",
       fmt::format("{}, {} available, limit of the control group {}",
                   bytes_text(memory.at("bytes"), "unknown"), bytes_text(memory.at("available"), "unknown"),
                   bytes_text(memory.at("limit"), "none")));
  line("kernel", fmt::format("{}; memory files: {}; futex: {}", text(kernel.at("release")),
                             text(kernel.at("memfd")), text(kernel.at("futex"))));
  line("huge pages", fmt::format("for shared memory: {}; /dev/shm {} (not used)",
                                 text(kernel.at("huge_pages")), bytes_text(kernel.at("dev_shm"), "missing")));
  line("gpu", fmt::format("{} NVIDIA; driver {}", text(devices.at("gpus")),
                          devices.at("driver").is_null() ? "none" : text(devices.at("driver"))));
  print_gpu(r.at("gpu"), line);
  line("network", fmt::format("RDMA: {}; EFA: {}", list(devices.at("rdma")), list(devices.at("efa"))));
  for (const json& mpi : software.at("mpi")) {
    line("mpi", fmt::format("{}: {}", text(mpi.at("path")), text(mpi.at("version"))));
  }
  if (software.at("mpi").empty()) line("mpi", "no mpirun, mpiexec or srun in PATH");
  line("nvshmem", software.at("nvshmem").is_null() ? "no library found" : text(software.at("nvshmem")));
  fmt::print("transports\n");
  for (const char* name : {"threads", "shm", "mpi", "peer", "nvshmem"}) {
    const json& t = r.at("transports").at(name);
    line(name,
         fmt::format("{}: {}", t.at("works").get<bool>() ? "works" : "does not work", text(t.at("why"))));
  }
}

}  // namespace moelane::tools
