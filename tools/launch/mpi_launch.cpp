#include "launch/mpi_launch.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "cli/option_values.hpp"
#include "machine/software.hpp"
#include "moelane/error.hpp"
#include "transport/mpi/load.hpp"

namespace moelane::tools {
namespace {

// A launcher's name for its library, in the terms of mpi::plugins(); empty if it is neither.
std::string library_of(const std::string& version) {
  if (version.find("Open MPI") != std::string::npos || version.find("OpenRTE") != std::string::npos) {
    return "openmpi";
  }
  return version.find("HYDRA") != std::string::npos ? "mpich" : "";
}

struct Launcher {
  std::string path, library;
};

// The first launcher in PATH for which there is a plug-in.
Launcher find_launcher() {
  const std::vector<std::string> plugins = mpi::plugins();
  const char* const wanted = std::getenv("MOELANE_MPI");
  std::string seen;
  for (const char* name : {"mpirun", "mpiexec", "mpirun.openmpi", "mpirun.mpich"}) {
    const std::string path = in_path(name);
    if (path.empty()) continue;
    const std::string library = library_of(version_of(path));
    if (wanted != nullptr && *wanted != 0 && library != wanted) continue;
    if (std::find(plugins.begin(), plugins.end(), library) != plugins.end()) return {path, library};
    seen += fmt::format("{}{}", seen.empty() ? "" : ", ", path);
  }
  std::string there;
  for (const std::string& plugin : plugins) there += (there.empty() ? "" : ", ") + plugin;
  throw Error(
      ErrorKind::transport,
      fmt::format("--transport mpi finds no mpirun that fits: plug-ins are there for {}, launchers in PATH{} "
                  "are {}; on Debian, openmpi-bin or mpich brings one",
                  there.empty() ? "no MPI library" : there,
                  wanted == nullptr ? "" : fmt::format(" of MOELANE_MPI={}", wanted),
                  seen.empty() ? "missing" : seen));
}

void set_unless_given(const char* variable, const char* value) { setenv(variable, value, 0); }

}  // namespace

std::optional<LaunchedRank> rank_under_mpirun() {
  for (const auto& [rank, size] :
       {std::pair{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}, std::pair{"PMI_RANK", "PMI_SIZE"}}) {
    const char *mine = std::getenv(rank), *all = std::getenv(size);
    if (mine == nullptr || all == nullptr) continue;
    LaunchedRank launched;
    launched.size = whole_number(size, std::string(all), 1, 1024);
    launched.rank = whole_number(rank, std::string(mine), 0, launched.size - 1);
    return launched;
  }
  return std::nullopt;
}

void start_mpi_ranks(int ranks, const std::vector<std::string>& arguments) {
  const Launcher launcher = find_launcher();
  std::vector<std::string> words = {launcher.path, "-n", std::to_string(ranks)};
  if (launcher.library == "openmpi") {
    // More ranks than cores is usual here, and then binding them would put several on one. What a rank has to
    // say it says itself.
    words.insert(words.end(), {"--oversubscribe", "--bind-to", "none", "--quiet"});
    if (geteuid() == 0) {  // in a container, say
      set_unless_given("OMPI_ALLOW_RUN_AS_ROOT", "1");
      set_unless_given("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    }
    set_unless_given("OMPI_MCA_btl",
                     "^uct");  // warns or fails where there is no InfiniBand, and is not needed
  }
  char self[4096] = {};
  if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) {
    throw Error(ErrorKind::transport,
                fmt::format("cannot find this program's file: {}", std::strerror(errno)));
  }
  words.emplace_back(self);
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  execv(launcher.path.c_str(), argv.data());
  throw Error(ErrorKind::transport,
              fmt::format("{} cannot be started: {}", launcher.path, std::strerror(errno)));
}

}  // namespace moelane::tools
