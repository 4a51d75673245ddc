#include "machine/cards.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "cuda/device.hpp"
#include "moelane/error.hpp"

namespace moelane::tools {
namespace {

// Whether somebody listens at the other end of a pipe or socket.
bool answers(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return false;
  if (S_ISFIFO(info.st_mode)) {
    const int pipe = open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    if (pipe >= 0) close(pipe);
    return pipe >= 0;
  }
  sockaddr_un address{};
  if (!S_ISSOCK(info.st_mode) || path.size() >= sizeof address.sun_path) return false;
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  const int link = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (link < 0) return false;
  // A listener of another type of socket, or one that is busy, is one all the same.
  const bool there = connect(link, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ||
                     errno == EPROTOTYPE || errno == EAGAIN;
  close(link);
  return there;
}

}  // namespace

void prepare_cuda(bool together) {
  if (!gpu::compiled()) return;
  // Kernels that wait for each other must not share a queue, nor wait for each other's code to be loaded.
  // Under MPS a card has about a hundred queues for all processes.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", together ? "32" : "4", 0);
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
}

int cards_from_outside() {
  if (!gpu::compiled()) return 0;
  static const int cards = [] {
    constexpr int kMost = 255;  // of an exit code
    const pid_t child = fork();
    if (child == 0) _exit(std::min(gpu::cards(), kMost));
    int status = 0;
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return child > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : 0;
  }();
  return cards;
}

void require_cards() {
  if (cards_from_outside() > 0) return;
  throw Error(ErrorKind::transport, fmt::format("--transport peer has no GPU to use: {}", gpu::reason()));
}

int card_of(int rank) { return rank % gpu::cards(); }

World join_cards(World meeting) {
  if (gpu::cards() == 0) throw Error(ErrorKind::transport, gpu::reason());
  const int card = card_of(meeting.rank());
  gpu::select(card);
  return World::peer(std::move(meeting), card);
}

Mps find_mps() {
  const char* given = std::getenv("CUDA_MPS_PIPE_DIRECTORY");
  Mps mps{given != nullptr && *given != 0 ? given : "/tmp/nvidia-mps"};
  mps.runs = answers(mps.folder + "/control");
  return mps;
}

double mps_percentage() {
  const char* given = std::getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
  const double percentage = given == nullptr ? 100 : std::strtod(given, nullptr);
  return percentage > 0 && percentage < 100 ? percentage : 100;
}

int fair_share(int multiprocessors, int ranks, double percentage) {
  const double all = multiprocessors * 100 / percentage;
  return std::clamp(static_cast<int>(all / ranks), 1, std::max(multiprocessors, 1));
}

}  // namespace moelane::tools
