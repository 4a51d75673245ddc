#include "launch/session.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "machine/cards.hpp"
#include "transport/world_impl.hpp"

namespace moelane::tools {
namespace {

using nlohmann::json;

std::atomic<bool> others_gave_up{false};  // all ranks but one, where ranks are threads

void say(const std::string& sentence) {
  if (!sentence.empty()) fmt::print(stderr, "moelane: {}\n", sentence);
}

// Tells what failed a rank, as soon as it is known. What fails all ranks alike (they cannot be given memory,
// say) is told once; so is bad input, at the end, by the rank that found it.
class Teller {
 public:
  void tell(const RankReport& report) {
    if (report.exit_code == 2) return;
    const std::lock_guard lock(mutex_);
    if (told_.insert(report.sentence).second) say(report.sentence);
  }

 private:
  std::mutex mutex_;
  std::set<std::string> told_;
};

// Runs one rank, which `meet`s the others first, and writes what it threw into its report.
void play(const Options& options, int rank, const std::function<World()>& meet, const Arena& arena,
          const RankMain& main, RankReport& report) {
  report.rank = rank;
  try {
    World world = meet();
    main(options.on_cards() ? join_cards(std::move(world)) : std::move(world), arena, report);
  } catch (const Error& error) {
    report.verdict = verdict_of(error);
    report.sentence = error.what();
    report.exit_code = exit_code_of(error);
  } catch (const InjectedDeath& death) {
    report.verdict = "died";
    report.sentence = death.sentence;
    report.exit_code = 3;
  } catch (const Stopped& stopped) {
    report.verdict = "stopped";
    report.sentence = stopped.sentence;
    report.exit_code = 2;
  } catch (const std::exception& error) {
    report.verdict = "transport";
    report.sentence = fmt::format("rank {}: {}", rank, error.what());
    report.exit_code = 3;
  }
}

void say_bad_input(const std::vector<RankReport>& reports) {
  for (const RankReport& r : reports) {
    if (r.exit_code == 2 && r.verdict != "stopped") return say(r.sentence);
  }
}

std::vector<RankReport> play_threads(const Options& options, const Arena& arena, const RankMain& main) {
  auto worlds = World::threads(options.ranks, options.config.timeout);
  std::vector<RankReport> reports(static_cast<std::size_t>(options.ranks));
  std::vector<std::thread> threads;
  std::atomic<int> ended{0};
  std::atomic<bool> failed{false};
  Teller teller;
  others_gave_up = false;
  for (int r = 0; r < options.ranks; ++r) {
    const auto i = static_cast<std::size_t>(r);
    threads.emplace_back([&, r, i] {
      play(
          options, r, [&] { return worlds[i]; }, arena, main, reports[i]);
      teller.tell(reports[i]);
      if (reports[i].exit_code != 0) failed = true;
      if (++ended == options.ranks - 1 && failed) others_gave_up = true;
    });
  }
  for (auto& thread : threads) thread.join();
  return reports;
}

std::string still_stalled(int rank) {
  return fmt::format("rank {} still stalled, as --inject asked, when all others had given up, and was ended",
                     rank);
}

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
  play(
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
void read_reports(const Fault& fault, std::vector<Child>& children) {
  Teller teller;
  std::size_t open = children.size();
  bool failed = false;
  while (open > 0) {
    if (open == 1 && failed && fault.rank >= 0 && !fault.die) {
      Child& stalled = children[static_cast<std::size_t>(fault.rank)];
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
        if (children[i].report) teller.tell(*children[i].report);
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
  say(report.sentence);
  return report;
}

std::vector<RankReport> play_processes(const Options& options, const Arena& arena, const RankMain& main) {
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
  read_reports(options.fault, children);
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

// Memory for floors and baselines where the ranks have no parent that maps it: heaps of one machine lie one
// behind the other.
Arena arena_of(const World& world, std::size_t bytes, detail::Heaps& heaps) {
  if (bytes == 0 || !world.impl().all_near()) return {};
  const std::size_t ranks = static_cast<std::size_t>(world.size()), page = 4096;
  heaps = world.impl().map_heaps(0, (bytes / ranks / page + 1) * page);
  return {heaps.bases[0], heaps.bytes * ranks};
}

// This process is one rank; reports are exchanged over the world once all are done.
std::vector<RankReport> play_launched(const Options& options, std::size_t arena_bytes, const RankMain& main) {
  const double timeout = options.config.timeout;
  const World world = options.over_mpi() ? World::mpi(timeout) : World::shm_from_environment(timeout);
  detail::Heaps heaps;
  const Arena arena = arena_of(world, arena_bytes, heaps);
  RankReport mine;
  play(
      options, world.rank(), [&] { return world; }, arena, main, mine);
  say(mine.sentence);
  if (mine.exit_code == 3) return {mine};  // peers may be gone: no exchange
  const std::vector<std::uint8_t> bytes = json::to_cbor(to_json(mine));
  const auto size = static_cast<std::uint64_t>(bytes.size());
  std::vector<std::uint64_t> sizes(static_cast<std::size_t>(world.size()));
  World(world).all_gather(&size, sizeof size, sizes.data());
  std::size_t most = 0;
  for (const std::uint64_t s : sizes) most = std::max(most, static_cast<std::size_t>(s));
  std::vector<std::uint8_t> padded(bytes), all(most * sizes.size());
  padded.resize(most);
  World(world).all_gather(padded.data(), most, all.data());
  std::vector<RankReport> reports;
  for (std::size_t r = 0; r < sizes.size(); ++r) {
    const auto* from = all.data() + r * most;
    reports.push_back(from_json(json::from_cbor(from, from + sizes[r])));
  }
  return reports;
}

}  // namespace

std::vector<RankReport> play_ranks(const Options& options, std::size_t arena_bytes, const RankMain& main) {
  if (options.launched) return play_launched(options, arena_bytes, main);
  Arena arena;
  if (arena_bytes > 0) {
    void* base =
        mmap(nullptr, arena_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) {
      throw Error(ErrorKind::transport, fmt::format("{} bytes for floors and baselines cannot be mapped: {}",
                                                    arena_bytes, std::strerror(errno)));
    }
    arena = {static_cast<std::byte*>(base), arena_bytes};
  }
  auto reports =
      options.threads() ? play_threads(options, arena, main) : play_processes(options, arena, main);
  if (arena.base != nullptr) munmap(arena.base, arena.bytes);
  say_bad_input(reports);
  return reports;
}

void stall(int rank, double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < end) {
    if (others_gave_up) throw InjectedDeath{still_stalled(rank)};
    std::this_thread::sleep_for(std::min<std::chrono::duration<double>>(
        end - std::chrono::steady_clock::now(), std::chrono::milliseconds(20)));
  }
}

}  // namespace moelane::tools
