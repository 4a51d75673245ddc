#pragma once

#include <sys/types.h>

#include <functional>
#include <string>

namespace moelane::test {

// A forked process that plays a part in a test of its own (support/fleet.hpp plays the same part on all
// ranks). What `part` returns is its report; expectations that fail in it, and what it throws, become
// failures of this test. It dies with the test, and join() ends it when it takes too long.
class Child {
 public:
  explicit Child(const std::function<std::string()>& part);
  ~Child();  // kills and reaps what was not joined
  Child(Child&& other) noexcept;
  Child& operator=(Child&&) = delete;

  std::string join(double seconds = 120);
  void kill();           // SIGKILL; join() then expects that
  void expect_killed();  // it will kill itself
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  int pipe_ = -1;
  bool killed_ = false;
};

}  // namespace moelane::test
