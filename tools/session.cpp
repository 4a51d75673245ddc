#include "session.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>

namespace moelane::tools {
namespace {

using nlohmann::json;

json spans_json(const std::vector<std::vector<Span>>& steps) {
  json out = json::array();
  for (const auto& parts : steps) {
    json step = json::array();
    for (const Span& span : parts) step.push_back({span.begin, span.end});
    out.push_back(step);
  }
  return out;
}

std::vector<std::vector<Span>> spans_from(const json& from) {
  std::vector<std::vector<Span>> out;
  for (const json& step : from) {
    out.emplace_back();
    for (const json& span : step) out.back().push_back({span.at(0), span.at(1)});
  }
  return out;
}

// Runs one rank and writes what it threw into its report.
void play(int rank, World world, const Arena& arena, const RankMain& main, RankReport& report) {
  report.rank = rank;
  try {
    main(std::move(world), arena, report);
  } catch (const Error& error) {
    report.verdict = verdict_of(error);
    report.sentence = error.what();
    report.exit_code = exit_code_of(error);
  } catch (const InjectedDeath&) {
    report.verdict = "died";
    report.sentence = fmt::format("rank {} died, as --inject asked", rank);
    report.exit_code = 3;
    return;
  } catch (const std::exception& error) {
    report.verdict = "transport";
    report.sentence = fmt::format("rank {}: {}", rank, error.what());
    report.exit_code = 3;
  }
  if (!report.sentence.empty()) fmt::print(stderr, "moelane: {}\n", report.sentence);
}

std::vector<RankReport> play_threads(const Options& options, const Arena& arena, const RankMain& main) {
  auto worlds = World::threads(options.ranks, options.config.timeout);
  std::vector<RankReport> reports(static_cast<std::size_t>(options.ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < options.ranks; ++r) {
    const auto i = static_cast<std::size_t>(r);
    threads.emplace_back([&, r, i] { play(r, worlds[i], arena, main, reports[i]); });
  }
  for (auto& thread : threads) thread.join();
  return reports;
}

struct Child {
  pid_t pid = -1;
  int pipe = -1;
  std::vector<std::uint8_t> bytes;
};

[[noreturn]] void child_main(const Options& options, const std::string& name, int rank, int pipe, pid_t parent,
                             const Arena& arena, const RankMain& main) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // no rank outlives the program, whatever ends it
  if (getppid() != parent) _exit(3);
  RankReport report;
  play(rank, World(nullptr), arena, [&](World, const Arena& shared, RankReport& r) {
    main(World::shm(name, rank, options.ranks, options.config.timeout), shared, r);
  }, report);
  const std::vector<std::uint8_t> bytes = json::to_cbor(to_json(report));
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t n = write(pipe, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) _exit(3);
    done += static_cast<std::size_t>(n);
  }
  _exit(report.exit_code);
}

// Reads the reports until every child has closed its pipe. Children bound all their waits, so this ends.
void read_reports(std::vector<Child>& children) {
  std::size_t open = children.size();
  while (open > 0) {
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
        close(children[i].pipe);
        children[i].pipe = -1;  // poll passes over it
        --open;
      }
    }
  }
}

RankReport report_of(int rank, const Child& child, int status) {
  RankReport report;
  report.rank = rank;
  try {
    if (!child.bytes.empty()) return from_json(json::from_cbor(child.bytes));
  } catch (const json::exception&) {
    // It ended while it wrote: as if it had written nothing.
  }
  report.verdict = "died";
  report.exit_code = 3;
  report.sentence = WIFSIGNALED(status) ? fmt::format("rank {} was killed by signal {}", rank, WTERMSIG(status))
                                        : fmt::format("rank {} ended without a report", rank);
  fmt::print(stderr, "moelane: {}\n", report.sentence);
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
      throw Error(ErrorKind::transport, fmt::format("rank {} of {} cannot be started: {}", r, options.ranks, why));
    }
    children.push_back(std::move(child));
  }
  read_reports(children);
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

// This process is one rank; reports are exchanged over the world once all are done.
std::vector<RankReport> play_launched(const Options& options, const RankMain& main) {
  const World world = World::shm_from_environment(options.config.timeout);
  RankReport mine;
  play(world.rank(), world, Arena{}, main, mine);
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
  if (world.rank() != 0) return {};
  std::vector<RankReport> reports;
  for (std::size_t r = 0; r < sizes.size(); ++r) {
    const auto* from = all.data() + r * most;
    reports.push_back(from_json(json::from_cbor(from, from + sizes[r])));
  }
  return reports;
}

}  // namespace

std::vector<RankReport> play_ranks(const Options& options, std::size_t arena_bytes, const RankMain& main) {
  if (options.launched && options.transport == "shm") return play_launched(options, main);
  Arena arena;
  if (arena_bytes > 0) {
    void* base = mmap(nullptr, arena_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) {
      throw Error(ErrorKind::transport, fmt::format("{} bytes for floors and baselines cannot be mapped: {}",
                                                    arena_bytes, std::strerror(errno)));
    }
    arena = {static_cast<std::byte*>(base), arena_bytes};
  }
  auto reports = options.transport == "threads" ? play_threads(options, arena, main)
                                                : play_processes(options, arena, main);
  if (arena.base != nullptr) munmap(arena.base, arena.bytes);
  return reports;
}

json to_json(const RankReport& r) {
  return {{"rank", r.rank},
          {"verdict", r.verdict},
          {"sentence", r.sentence},
          {"exit_code", r.exit_code},
          {"dispatch", spans_json(r.dispatch)},
          {"combine", spans_json(r.combine)},
          {"dispatch_digests", r.dispatch_digests},
          {"combine_digests", r.combine_digests},
          {"rows", r.rows},
          {"rows_dispatched", r.rows_dispatched},
          {"tokens_combined", r.tokens_combined},
          {"mismatches", r.mismatches},
          {"rank_visits", r.rank_visits},
          {"tokens_routed", r.tokens_routed},
          {"dispatch_bytes", r.dispatch_bytes},
          {"combine_bytes", r.combine_bytes},
          {"heap_bytes", r.heap_bytes},
          {"mapped_bytes", r.mapped_bytes},
          {"way", r.way},
          {"trace", r.trace},
          {"extra", r.extra}};
}

RankReport from_json(const json& j) {
  RankReport r;
  j.at("rank").get_to(r.rank);
  j.at("verdict").get_to(r.verdict);
  j.at("sentence").get_to(r.sentence);
  j.at("exit_code").get_to(r.exit_code);
  r.dispatch = spans_from(j.at("dispatch"));
  r.combine = spans_from(j.at("combine"));
  j.at("dispatch_digests").get_to(r.dispatch_digests);
  j.at("combine_digests").get_to(r.combine_digests);
  j.at("rows").get_to(r.rows);
  j.at("rows_dispatched").get_to(r.rows_dispatched);
  j.at("tokens_combined").get_to(r.tokens_combined);
  j.at("mismatches").get_to(r.mismatches);
  j.at("rank_visits").get_to(r.rank_visits);
  j.at("tokens_routed").get_to(r.tokens_routed);
  j.at("dispatch_bytes").get_to(r.dispatch_bytes);
  j.at("combine_bytes").get_to(r.combine_bytes);
  j.at("heap_bytes").get_to(r.heap_bytes);
  j.at("mapped_bytes").get_to(r.mapped_bytes);
  j.at("way").get_to(r.way);
  r.trace = j.at("trace");
  r.extra = j.at("extra");
  return r;
}

int exit_code_of(const Error& error) {
  switch (error.kind()) {
    case ErrorKind::argument:
    case ErrorKind::capacity:
      return 2;
    default:
      return 3;
  }
}

std::string verdict_of(const Error& error) {
  switch (error.kind()) {
    case ErrorKind::argument:
      return "argument";
    case ErrorKind::capacity:
      return "capacity";
    case ErrorKind::mismatch:
      return "mismatch";
    case ErrorKind::timeout:
      return "timeout";
    case ErrorKind::aborted:
      return "aborted";
    case ErrorKind::transport:
      return "transport";
  }
  return "failed";
}

}  // namespace moelane::tools
