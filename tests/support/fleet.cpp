#include "support/fleet.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

namespace moelane::support {
namespace {

Ending ending_of(const std::function<void()>& action) {
  try {
    action();
    return {};
  } catch (const Error& error) {
    return {true, error.kind(), error.what()};
  } catch (const std::exception& error) {
    return {true, std::nullopt, error.what()};
  }
}

std::vector<Ending> play_threads(int ranks, double timeout, const Part& part) {
  std::vector<World> worlds = World::threads(ranks, timeout);
  std::vector<Ending> endings(worlds.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < worlds.size(); ++r) {
    threads.emplace_back([&, r] { endings[r] = ending_of([&] { part(std::move(worlds[r])); }); });
  }
  for (std::thread& thread : threads) thread.join();
  return endings;
}

// A rank's process writes one byte for the kind (255: another exception), the sentence, and a last zero byte.
constexpr unsigned char kFine = 254, kOther = 255;

[[noreturn]] void be_rank(const std::string& name, int rank, int ranks, double timeout, const Part& part,
                          int pipe) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  Ending ending = ending_of([&] { part(World::shm(name, rank, ranks, timeout)); });
  if (!ending.threw && testing::Test::HasFailure()) ending = {true, std::nullopt, "an expectation failed"};
  std::string text(1, static_cast<char>(!ending.threw ? kFine
                                        : ending.kind ? static_cast<unsigned char>(*ending.kind)
                                                      : kOther));
  text += ending.sentence + '\0';
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t wrote = write(pipe, text.data() + done, text.size() - done);
    if (wrote <= 0) break;
    done += static_cast<std::size_t>(wrote);
  }
  _exit(0);
}

struct Process {
  pid_t pid = -1;
  int pipe = -1;
};

Ending ending_of(const Process& process, std::chrono::steady_clock::time_point until) {
  std::string text;
  char some[4096];
  while (true) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now())
            .count();
    pollfd polled{process.pipe, POLLIN, 0};
    if (left <= 0 || poll(&polled, 1, static_cast<int>(left)) == 0) {
      kill(process.pid, SIGKILL);
      text.clear();
      break;
    }
    const ssize_t got = read(process.pipe, some, sizeof some);
    if (got <= 0) break;
    text.append(some, static_cast<std::size_t>(got));
  }
  close(process.pipe);
  int status = 0;
  waitpid(process.pid, &status, 0);
  if (text.size() < 2 || text.back() != '\0') {
    return {true, std::nullopt, "the process ended with status " + std::to_string(status) + " or hung"};
  }
  Ending ending;
  const auto first = static_cast<unsigned char>(text.front());
  ending.threw = first != kFine;
  if (ending.threw && first != kOther) ending.kind = static_cast<ErrorKind>(first);
  ending.sentence = text.substr(1, text.size() - 2);
  return ending;
}

std::vector<Ending> play_processes(int ranks, double timeout, const Part& part) {
  static int worlds = 0;
  const std::string name = "moelane-test-" + std::to_string(getpid()) + "-" + std::to_string(worlds++);
  std::vector<Process> processes(static_cast<std::size_t>(ranks));
  for (int r = 0; r < ranks; ++r) {
    int ends[2];
    require(pipe2(ends, O_CLOEXEC) == 0, "no pipe");
    const pid_t pid = fork();
    require(pid >= 0, "no process");
    if (pid == 0) be_rank(name, r, ranks, timeout, part, ends[1]);
    close(ends[1]);
    processes[static_cast<std::size_t>(r)] = {pid, ends[0]};
  }
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(120);
  std::vector<Ending> endings;
  for (const Process& process : processes) endings.push_back(ending_of(process, until));
  return endings;
}

}  // namespace

std::vector<Ending> play(Home home, int ranks, double timeout, const Part& part) {
  return home == Home::threads ? play_threads(ranks, timeout, part) : play_processes(ranks, timeout, part);
}

std::string complaints(const std::vector<Ending>& endings) {
  std::string all;
  for (std::size_t r = 0; r < endings.size(); ++r) {
    if (!endings[r].threw) continue;
    all += "rank " + std::to_string(r) + ": " + endings[r].sentence + "\n";
  }
  return all;
}

std::string name_of(ErrorKind kind) {
  constexpr const char* kNames[] = {"argument", "capacity", "mismatch", "timeout", "aborted", "transport"};
  return kNames[static_cast<int>(kind)];
}

std::string refusal(ErrorKind kind, const std::function<void()>& call) {
  const Ending ending = ending_of(call);
  require(ending.threw, "nothing was thrown, expected was an Error(" + name_of(kind) + ")");
  require(ending.kind == kind,
          "expected an Error(" + name_of(kind) + "), got " +
              (ending.kind ? "Error(" + name_of(*ending.kind) + ")" : "another exception") + ": " +
              ending.sentence);
  return ending.sentence;
}

void require_words(const std::string& sentence, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    require(sentence.find(part) != std::string::npos, "no \"" + part + "\" in \"" + sentence + "\"");
  }
}

}  // namespace moelane::support
