#include "report/verdict.hpp"

namespace moelane::tools {

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

int severity(int code, const std::string& verdict) {
  if (code == 0) return 0;
  const int base = code == 1 ? 30 : code == 2 ? 20 : 10;
  return base + (verdict == "died" ? 2 : verdict == "aborted" || verdict == "stopped" ? 0 : 1);
}

}  // namespace moelane::tools
