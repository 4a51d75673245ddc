#pragma once

#include <stdexcept>
#include <string>

namespace moelane {

enum class ErrorKind {
  argument,   // an argument, a tensor or a file is not what is allowed; nothing was sent
  capacity,   // an output was too small: the step is invalid, its protocol was completed, the lane goes on
  mismatch,   // ranks disagree: another configuration, placement, way or symmetric tensor
  timeout,    // a wait passed its bound; the engine refuses further calls
  aborted,    // abort() was called here, or a peer left the world; the engine refuses further calls
  transport,  // the operating system or the transport failed
};

// Every failure of the library is thrown as this, with one sentence that names the thing, its value and what
// is allowed (or, for a wait: waiter, peer, phase, step, what was seen and what was needed).
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& sentence) : std::runtime_error(sentence), kind_(kind) {}
  ErrorKind kind() const noexcept { return kind_; }

 private:
  ErrorKind kind_;
};

}  // namespace moelane
