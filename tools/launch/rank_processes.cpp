#include "launch/rank_processes.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "launch/failures.hpp"
#include "launch/injection.hpp"
#include "moelane/error.hpp"

namespace moelane::tools {
namespace {

using nlohmann::json;

struct Child {
  pid_t pid = -1;
  int pipe = -1;
  std::vector<std::uint8_t> bytes;
  std::optional<RankReport> report;
  bool ended = false;  // by us
};

[[noreturn]] void child_main(const Options& options, const std::string& name, int rank, int pipe,
                             pid_t parent, const Arena& arena, const RankMain& main) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // no rank outlives the program, whatever ends it
  if (getppid() != parent) _exit(3);
  RankReport report;
  run_one_rank(
      options, rank, [&] { return World::shm(name, rank, options.ranks, options.config.timeout); }, arena,
      main, report);
  const std::vector<std::uint8_t> bytes = json::to_cbor(to_json(report));
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t n = write(pipe, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) _exit(3);
    done += static_cast<std::size_t>(n);
  }
  _exit(report.exit_code);
}

void take_report(Child& child) {
  close(child.pipe);
  child.pipe = -1;  // poll passes over it
  try {
    if (!child.bytes.empty()) child.report = from_json(json::from_cbor(child.bytes));
  } catch (const json::exception&) {
    // It ended while it wrote: as if it had written nothing.
  }
}

// Reads the reports until every child has closed its pipe. Children bound all their waits, so this ends; a
// child that stalls as it was told to is ended when the others have failed.
void read_reports(const Injection& injection, std::vector<Child>& children) {
  FailureReporter failures;
  std::size_t open = children.size();
  bool failed = false;
  while (open > 0) {
    if (open == 1 && failed && injection.rank >= 0 && !injection.die) {
      Child& stalled = children[static_cast<std::size_t>(injection.rank)];
      if (stalled.pipe >= 0 && !stalled.ended) stalled.ended = kill(stalled.pid, SIGKILL) == 0;
    }
    std::vector<pollfd> fds;
    for (const Child& child : children) fds.push_back({child.pipe, POLLIN, 0});
    if (poll(fds.data(), fds.size(), -1) < 0 && errno != EINTR) return;
    for (std::size_t i = 0; i < fds.size(); ++i) {
      if ((fds[i].revents & (POLLIN | POLLHUP | POLLERR)) == 0) continue;
      std::uint8_t buffer[65536];
      const ssize_t n = read(children[i].pipe, buffer, sizeof buffer);
      if (n > 0) {
        children[i].bytes.insert(children[i].bytes.end(), buffer, buffer + n);
      } else if (n == 0 || errno != EINTR) {
        take_report(children[i]);
        if (children[i].report) failures.report(*children[i].report);
        failed = failed || !children[i].report || children[i].report->exit_code != 0;
        --open;
      }
    }
  }
}

RankReport report_of(int rank, const Child& child, int status) {
  if (child.report) return *child.report;
  RankReport report;
  report.rank = rank;
  report.verdict = "died";
  report.exit_code = 3;
  report.sentence = child.ended ? still_stalled(rank)
                    : WIFSIGNALED(status)
                        ? fmt::format("rank {} was killed by signal {}", rank, WTERMSIG(status))
                        : fmt::format("rank {} ended without a report", rank);
  print_failure(report.sentence);
  return report;
}

}  // namespace

std::vector<RankReport> run_rank_processes(const Options& options, const Arena& arena, const RankMain& main) {
  const std::string name = fmt::format("run-{}-{}", getpid(), options.seed);
  const pid_t self = getpid();
  std::vector<Child> children;
  std::fflush(nullptr);
  for (int r = 0; r < options.ranks; ++r) {
    int ends[2];
    Child child;
    if (pipe2(ends, O_CLOEXEC) == 0) {
      child.pid = fork();
      if (child.pid == 0) {
        for (const Child& other : children) close(other.pipe);
        close(ends[0]);
        child_main(options, name, r, ends[1], self, arena, main);
      }
      const int failed = errno;
      close(ends[1]);
      child.pipe = ends[0];
      errno = failed;
    }
    if (child.pid < 0) {
      const std::string why = std::strerror(errno);
      for (const Child& other : children) kill(other.pid, SIGKILL);
      for (const Child& other : children) waitpid(other.pid, nullptr, 0);
      throw Error(ErrorKind::transport,
                  fmt::format("rank {} of {} cannot be started: {}", r, options.ranks, why));
    }
    children.push_back(std::move(child));
  }
  read_reports(options.injection, children);
  std::vector<RankReport> reports;
  for (int r = 0; r < options.ranks; ++r) {
    int status = 0;
    const Child& child = children[static_cast<std::size_t>(r)];
    while (waitpid(child.pid, &status, 0) < 0 && errno == EINTR) {
    }
    reports.push_back(report_of(r, child, status));
  }
  return reports;
}

}  // namespace moelane::tools
