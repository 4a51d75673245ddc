#include "machine/host_facts.hpp"

#include <fmt/format.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>

#include "machine/control_groups.hpp"
#include "machine/system_files.hpp"

namespace moelane::tools {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

json or_null(const std::string& text) { return text.empty() ? json() : json(text); }

bool numbered(const std::string& name, std::size_t prefix) {
  return name.size() > prefix && name.find_first_not_of("0123456789", prefix) == std::string::npos;
}

// What the library's kernels choose: they look at the same flags.
std::string instructions() {
  if (const char* wanted = std::getenv("MOELANE_ISA"); wanted != nullptr && *wanted != 0) {
    return fmt::format("{} (MOELANE_ISA)", wanted);
  }
  const std::string flags = " " + entry_of("/proc/cpuinfo", "flags") + " ";
  const auto has = [&](const char* flag) {
    return flags.find(fmt::format(" {} ", flag)) != std::string::npos;
  };
  if (has("avx512f") && has("avx512bw") && has("avx512dq") && has("avx512vl")) return "avx512";
  return has("avx2") && has("fma") ? "avx2" : "portable";
}

json last_level_cache() {
  int highest = 0;
  json bytes;
  const fs::path folder = "/sys/devices/system/cpu/cpu0/cache";
  for (const std::string& name : names_in(folder, "index")) {
    const int level = std::atoi(first_line(folder / name / "level").c_str());
    if (level <= highest || first_line(folder / name / "type") == "Instruction") continue;
    highest = level;
    bytes = bytes_from(first_line(folder / name / "size"));
  }
  return bytes;
}

std::string reason(int error) { return std::strerror(error); }

// A memory file is made, sized, mapped and written, as the shm transport does it.
std::string try_memfd() {
  const int file = memfd_create("moelane-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file < 0) return reason(errno);
  std::string result = "works";
  void* base = MAP_FAILED;
  if (ftruncate(file, 4096) != 0 ||
      (base = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)) == MAP_FAILED) {
    result = reason(errno);
  } else {
    static_cast<volatile char*>(base)[0] = 1;
    munmap(base, 4096);
  }
  close(file);
  return result;
}

// A wait for a value that is not there comes back at once.
std::string try_futex() {
  std::uint32_t word = 1;
  const timespec limit{1, 0};
  const long result = syscall(SYS_futex, &word, FUTEX_WAIT, 0, &limit, nullptr, 0);
  return result < 0 && errno == EAGAIN ? "works"
         : result < 0                  ? reason(errno)
                                       : "a wait for another value slept";
}

}  // namespace

json cpu_facts() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  const int cores = sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 0;
  const auto nodes = names_in("/sys/devices/system/node", "node");
  return {
      {"model", or_null(entry_of("/proc/cpuinfo", "model name"))},
      {"cores_online", sysconf(_SC_NPROCESSORS_ONLN)},
      {"cores_allowed", cores},
      {"cores_quota", cgroup_cores()},
      {"numa_nodes", std::count_if(nodes.begin(), nodes.end(), [](const auto& n) { return numbered(n, 4); })},
      {"last_level_cache", last_level_cache()},
      {"instructions", instructions()}};
}

json memory_facts() {
  return {{"bytes", bytes_from(entry_of("/proc/meminfo", "MemTotal"))},
          {"available", bytes_from(entry_of("/proc/meminfo", "MemAvailable"))},
          {"limit", cgroup_memory()}};
}

json kernel_facts() {
  utsname name{};
  uname(&name);
  struct statvfs shm {};
  const bool there = statvfs("/dev/shm", &shm) == 0;
  const std::string huge = first_line("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
  const std::size_t open = huge.find('['), close = huge.find(']');
  return {
      {"release", name.release},
      {"memfd", try_memfd()},
      {"futex", try_futex()},
      {"huge_pages",
       open < close && close != std::string::npos ? json(huge.substr(open + 1, close - open - 1)) : json()},
      {"dev_shm", there ? json(static_cast<std::uint64_t>(shm.f_blocks) * shm.f_frsize) : json()}};
}

json device_facts() {
  const auto gpus = names_in("/dev", "nvidia");
  json rdma = json::array(), efa = json::array();
  const fs::path folder = "/sys/class/infiniband";
  for (const std::string& name : names_in(folder, "")) {
    std::error_code error;
    const fs::path driver = fs::read_symlink(folder / name / "device" / "driver", error);
    (!error && driver.filename() == "efa" ? efa : rdma).push_back(name);
  }
  return {{"gpus", std::count_if(gpus.begin(), gpus.end(), [](const auto& n) { return numbered(n, 6); })},
          {"driver", or_null(first_line("/proc/driver/nvidia/version"))},
          {"rdma", rdma},
          {"efa", efa}};
}

}  // namespace moelane::tools
