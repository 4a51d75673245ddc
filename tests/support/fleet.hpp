#pragma once

#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "moelane/error.hpp"
#include "moelane/world.hpp"

// Lets several ranks play a part in a test, as threads or as processes. The part is the same code for both,
// so it says what is wrong by throwing: an expectation that fails in another process would be lost.
namespace moelane::test {

// What a part throws when something is not as it should be.
struct Wrong : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline void require(bool condition, const std::string& otherwise) {
  if (!condition) throw Wrong(otherwise);
}

enum class Home { threads, processes };
inline const char* name_of(Home home) { return home == Home::threads ? "threads" : "processes"; }

// How one rank's part ended.
struct Ending {
  bool threw = false;
  std::optional<ErrorKind> kind;  // of an Error
  std::string sentence;
};

// One rank's part. It makes its engines itself, so that they end with it, however it ends.
using Part = std::function<void(World)>;

enum class Processor { cpu, gpu };
Processor usual_processor();  // gpu_ranks.hpp: on_gpu()

// Plays `part` on `ranks` ranks of a new world; `timeout` is the world's. Ends every process that hangs.
std::vector<Ending> play(Home home, int ranks, double timeout, const Part& part,
                         Processor processor = usual_processor());

// What went wrong, one line for each rank that threw; empty if none did.
std::string complaints(const std::vector<Ending>& endings);

// The sentence with which `call` throws an Error of `kind`; a Wrong if it does not.
std::string refusal(ErrorKind kind, const std::function<void()>& call);
std::string name_of(ErrorKind kind);

// Throws Wrong unless all of `parts` occur in `sentence`.
void require_words(const std::string& sentence, const std::vector<std::string>& parts);

}  // namespace moelane::test
