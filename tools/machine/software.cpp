#include "machine/software.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

namespace moelane::tools {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

std::vector<std::string> folders_of(const char* variable) {
  std::vector<std::string> folders;
  const char* value = std::getenv(variable);
  std::istringstream in(value == nullptr ? "" : value);
  for (std::string folder; std::getline(in, folder, ':');) {
    if (!folder.empty()) folders.push_back(folder);
  }
  return folders;
}

// Where libraries commonly lie; nothing is loaded, as loading would run code of the library.
std::string find_library(const std::string& prefix) {
  std::vector<std::string> folders = folders_of("LD_LIBRARY_PATH");
  if (const char* home = std::getenv("NVSHMEM_HOME")) folders.push_back(std::string(home) + "/lib");
  for (const char* usual :
       {"/usr/local/nvshmem/lib", "/opt/nvshmem/lib", "/usr/local/lib", "/usr/local/cuda/lib64",
        "/usr/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu/nvshmem/13",
        "/usr/lib/x86_64-linux-gnu/nvshmem/12", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"}) {
    folders.push_back(usual);
  }
  for (const std::string& folder : folders) {
    std::error_code error;
    for (fs::directory_iterator i(folder, error), end; !error && i != end; i.increment(error)) {
      if (std::string(i->path().filename()).starts_with(prefix)) return i->path();
    }
  }
  return "";
}

}  // namespace

std::string in_path(const std::string& program) {
  for (const std::string& folder : folders_of("PATH")) {
    const std::string path = folder + "/" + program;
    if (access(path.c_str(), X_OK) == 0 && !fs::is_directory(path)) return path;
  }
  return "";
}

// The first line that `program --version` writes within two seconds; it is killed when it takes longer.
std::string version_of(const std::string& program) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return "";
  const pid_t child = fork();
  if (child == 0) {
    const int nothing = open("/dev/null", O_RDWR);
    dup2(nothing, STDIN_FILENO);
    dup2(nothing, STDERR_FILENO);
    dup2(ends[1], STDOUT_FILENO);
    execl(program.c_str(), program.c_str(), "--version", static_cast<char*>(nullptr));
    _exit(127);
  }
  close(ends[1]);
  std::string text;
  using std::chrono::steady_clock;
  const auto end = steady_clock::now() + std::chrono::seconds(2);
  while (child > 0 && text.find('\n') == std::string::npos) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(end - steady_clock::now()).count();
    pollfd wait{ends[0], POLLIN, 0};
    const int ready = left > 0 ? poll(&wait, 1, static_cast<int>(left)) : 0;
    if (ready < 0 && errno == EINTR) continue;
    char buffer[512];
    const ssize_t n = ready > 0 ? read(ends[0], buffer, sizeof buffer) : 0;
    if (n <= 0) break;
    text.append(buffer, static_cast<std::size_t>(n));
  }
  close(ends[0]);
  if (child > 0) {
    kill(child, SIGKILL);
    while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  return text.substr(0, text.find('\n'));
}

json software_facts() {
  json mpi = json::array();
  for (const char* launcher : {"mpirun", "mpiexec", "srun"}) {
    const std::string path = in_path(launcher);
    if (!path.empty()) mpi.push_back({{"launcher", launcher}, {"path", path}, {"version", version_of(path)}});
  }
  const std::string nvshmem = find_library("libnvshmem_host.so");
  return {{"mpi", mpi}, {"nvshmem", nvshmem.empty() ? json() : json(nvshmem)}};
}

}  // namespace moelane::tools
