#include "transport/mpi/load.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "moelane/error.hpp"

namespace moelane::mpi {
namespace {

constexpr const char* kNames[] = {"openmpi", "mpich"};
std::atomic<bool> discord{false};

// Ends MPI when the process does.
struct Session {
  const Api* api = nullptr;
  ~Session() {
    if (api != nullptr && !discord) api->finish();
  }
};

std::string folder_of(const std::string& file) { return file.substr(0, file.rfind('/')); }

// Where plug-ins lie: beside the code that this is part of (a program in its build folder), or in the library
// folder's "moelane" (installed).
std::vector<std::string> folders() {
  std::vector<std::string> found;
  if (const char* given = std::getenv("MOELANE_PLUGINS"); given != nullptr && *given != 0) {
    return {given};
  }
  Dl_info self{};
  if (dladdr(reinterpret_cast<const void*>(&folders), &self) != 0 && self.dli_fname != nullptr) {
    char* const real = realpath(self.dli_fname, nullptr);
    if (real != nullptr) {
      const std::string here = folder_of(real);
      for (const std::string& below :
           {std::string(), std::string("/moelane"), std::string("/../" MOELANE_LIBDIR "/moelane")}) {
        found.push_back(here + below);
      }
    }
    std::free(real);
  }
  return found;
}

std::string file_of(const std::string& name) { return "libmoelane_" + name + ".so"; }

std::string path_of(const std::string& name) {
  for (const std::string& folder : folders()) {
    const std::string path = folder + "/" + file_of(name);
    if (access(path.c_str(), R_OK) == 0) return path;
  }
  return "";
}

// The library that is part of this process already, or whose launcher started it; empty: neither.
std::string expected() {
  if (void* const symbol = dlsym(RTLD_DEFAULT, "MPI_Get_library_version")) {
    char text[8192] = {};  // MPI_MAX_LIBRARY_VERSION_STRING of both
    int length = 0;
    reinterpret_cast<int (*)(char*, int*)>(symbol)(text, &length);
    if (std::strstr(text, "Open MPI") != nullptr) return "openmpi";
    if (std::strstr(text, "MPICH") != nullptr) return "mpich";
  }
  if (std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr) return "openmpi";
  if (std::getenv("PMI_RANK") != nullptr) return "mpich";
  const char* named = std::getenv("MOELANE_MPI");
  return named == nullptr ? "" : named;
}

const Api* load(const std::string& path, std::string& why) {
  // Global: the library's own components look for its symbols there.
  void* const plugin = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (plugin == nullptr) {
    why = dlerror();
    return nullptr;
  }
  void* const symbol = dlsym(plugin, "moelane_mpi_api");
  const Api* const api = symbol == nullptr ? nullptr : reinterpret_cast<const Api* (*)()>(symbol)();
  if (api != nullptr && api->version == kApiVersion) return api;
  why = path + " is of another version of moelane";
  return nullptr;
}

const Api& load_one() {
  const std::string only = expected();
  std::string tried, why;
  for (const std::string& name : plugins()) {
    if (!only.empty() && name != only) continue;
    if (const Api* api = load(path_of(name), why)) return *api;
    tried += "; " + why;
  }
  std::string places;
  for (const std::string& folder : folders()) places += (places.empty() ? "" : ", ") + folder;
  const std::string what = only.empty() ? file_of(kNames[0]) + " or " + file_of(kNames[1]) : file_of(only);
  throw Error(ErrorKind::transport, "the transport mpi has no plug-in that loads: looked for " + what +
                                        " in " + places + tried +
                                        "; it is built where CMake finds Open MPI or MPICH");
}

}  // namespace

std::vector<std::string> plugins() {
  std::vector<std::string> found;
  for (const char* name : kNames) {
    if (!path_of(name).empty()) found.emplace_back(name);
  }
  return found;
}

const Api& loaded_api() {
  static Session session;
  if (session.api == nullptr) session.api = &load_one();
  return *session.api;
}

void left_in_discord() { discord = true; }

}  // namespace moelane::mpi
