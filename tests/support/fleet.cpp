#include "support/fleet.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>

#include "support/child.hpp"
#include "support/gpu_ranks.hpp"

namespace moelane::test {
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

// A process reports its ending as a letter and the sentence.
constexpr char kFine = '-', kOther = '?', kFirstKind = 'a';

std::string text_of(const Ending& ending) {
  const char letter = !ending.threw ? kFine
                      : ending.kind ? static_cast<char>(kFirstKind + static_cast<int>(*ending.kind))
                                    : kOther;
  return letter + ending.sentence;
}

Ending ending_from(const std::string& text) {
  if (text.empty()) return {true, std::nullopt, "the process ended without a word"};
  Ending ending{text[0] != kFine, std::nullopt, text.substr(1)};
  if (ending.threw && text[0] != kOther) ending.kind = static_cast<ErrorKind>(text[0] - kFirstKind);
  return ending;
}

std::vector<Ending> play_processes(int ranks, double timeout, const Part& part) {
  static int worlds = 0;
  const std::string name = "moelane-test-" + std::to_string(getpid()) + "-" + std::to_string(worlds++);
  std::vector<Child> children;
  for (int r = 0; r < ranks; ++r) {
    children.emplace_back(
        [&, r] { return text_of(ending_of([&] { part(World::shm(name, r, ranks, timeout)); })); });
  }
  std::vector<Ending> endings;
  for (Child& child : children) endings.push_back(ending_from(child.join()));
  return endings;
}

void skip_processes() {
  GTEST_SKIP() << "this process has used CUDA and cannot fork GPU ranks; run tests of processes on their own";
}

}  // namespace

Processor usual_processor() { return on_gpu() ? Processor::gpu : Processor::cpu; }

std::vector<Ending> play(Home home, int ranks, double timeout, const Part& part, Processor processor) {
  const Part on_card = [&](World world) { part(seated(std::move(world))); };
  const Part& all = processor == Processor::gpu ? on_card : part;
  if (home == Home::threads) return play_threads(ranks, timeout, all);
  if (processor == Processor::gpu && used_cuda()) {
    skip_processes();
    return {};
  }
  return play_processes(ranks, timeout, all);
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

}  // namespace moelane::test
