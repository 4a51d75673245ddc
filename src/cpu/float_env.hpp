#pragma once

#include <cfenv>
#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

// The floating-point modes that kernels count on: round to nearest even, denormals kept, no traps. Frameworks
// set flush-to-zero in their threads, and a sum must not differ for it.
namespace moelane::cpu {

// Sets the default modes for a scope. What computes under it must be called through a pointer: the compiler
// knows of no dependence of arithmetic on the modes, and moves it freely past their change within a function.
class DefaultFloatEnv {
 public:
  DefaultFloatEnv(const DefaultFloatEnv&) = delete;
  DefaultFloatEnv& operator=(const DefaultFloatEnv&) = delete;

#if defined(__x86_64__)
  DefaultFloatEnv() : caller_(_mm_getcsr()), changed_((caller_ & ~kFlags) != kDefault) {
    if (changed_) _mm_setcsr(kDefault);
  }
  ~DefaultFloatEnv() {
    if (changed_) _mm_setcsr(caller_);
  }

 private:
  static constexpr unsigned kFlags = 0x3F;      // which exceptions were raised so far
  static constexpr unsigned kDefault = 0x1F80;  // all exceptions masked, everything else off
  const unsigned caller_;
  const bool changed_;
#elif defined(__aarch64__)
  DefaultFloatEnv() {
    asm volatile("mrs %0, fpcr" : "=r"(caller_));
    if (caller_ != 0) asm volatile("msr fpcr, %0" ::"r"(std::uint64_t{0}));
  }
  ~DefaultFloatEnv() {
    if (caller_ != 0) asm volatile("msr fpcr, %0" ::"r"(caller_));
  }

 private:
  std::uint64_t caller_ = 0;
#else
  DefaultFloatEnv() {
    std::fegetenv(&caller_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultFloatEnv() { std::fesetenv(&caller_); }

 private:
  std::fenv_t caller_;
#endif
};

}  // namespace moelane::cpu
