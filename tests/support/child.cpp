#include "support/child.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <exception>
#include <stdexcept>
#include <utility>

namespace moelane::test {
namespace {

// Instead of printing failures, where the parent would not count them.
class Collector : public testing::EmptyTestEventListener {
 public:
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    const char* const file = result.file_name() != nullptr ? result.file_name() : "?";
    text += std::string(file) + ":" + std::to_string(result.line_number()) + ": " + result.message() + "\n";
  }
  std::string text;
};

void write_all(int fd, const std::string& text) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t wrote = write(fd, text.data() + done, text.size() - done);
    if (wrote <= 0) return;
    done += static_cast<std::size_t>(wrote);
  }
}

// The pipe carries the report, a zero byte, failures, and a zero byte as a sign that the part came to its
// end.
[[noreturn]] void play(const std::function<std::string()>& part, int pipe) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  delete listeners.Release(listeners.default_result_printer());
  auto* const collector = new Collector;
  listeners.Append(collector);
  std::string report;
  try {
    report = part();
  } catch (const std::exception& error) {
    collector->text += std::string("threw: ") + error.what() + "\n";
  }
  write_all(pipe, report + '\0' + collector->text + '\0');
  _exit(0);
}

}  // namespace

Child::Child(const std::function<std::string()>& part) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  pid_ = fork();
  if (pid_ == 0) {
    close(ends[0]);
    play(part, ends[1]);
  }
  close(ends[1]);
  pipe_ = ends[0];
  if (pid_ < 0) throw std::runtime_error("no process");
}

Child::Child(Child&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), pipe_(std::exchange(other.pipe_, -1)), killed_(other.killed_) {}

Child::~Child() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  if (pipe_ >= 0) close(pipe_);
}

void Child::expect_killed() { killed_ = true; }

void Child::kill() {
  expect_killed();
  ::kill(pid_, SIGKILL);
}

std::string Child::join(double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  std::string text;
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
    pollfd polled{pipe_, POLLIN, 0};
    if (left <= 0 || poll(&polled, 1, static_cast<int>(left)) == 0) {
      ADD_FAILURE() << "process " << pid_ << " was not done after " << seconds << " s";
      ::kill(pid_, SIGKILL);
      break;
    }
    char some[4096];
    const ssize_t got = read(pipe_, some, sizeof some);
    if (got <= 0) break;
    text.append(some, static_cast<std::size_t>(got));
  }
  int status = 0;
  const pid_t pid = std::exchange(pid_, -1);
  waitpid(pid, &status, 0);
  const std::size_t first = text.find('\0');
  const std::size_t second = first == std::string::npos ? first : text.find('\0', first + 1);
  if (second == std::string::npos) {
    const bool as_told = killed_ && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    if (!as_told) ADD_FAILURE() << "process " << pid << " ended early, status " << status;
    return text;
  }
  const std::string failures = text.substr(first + 1, second - first - 1);
  if (!failures.empty()) ADD_FAILURE() << "in process " << pid << ":\n" << failures;
  return text.substr(0, first);
}

}  // namespace moelane::test
