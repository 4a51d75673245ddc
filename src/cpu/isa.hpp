#pragma once

#include <cstdint>
#include <string_view>

namespace moelane::cpu {

// The instruction sets that rows.hpp is written for. All give the same bits; they differ in speed only.
enum class Isa : std::uint8_t { portable, avx2, avx512 };

constexpr std::string_view name_of(Isa isa) {
  switch (isa) {
    case Isa::portable:
      return "portable";
    case Isa::avx2:
      return "avx2";
    case Isa::avx512:
      return "avx512";
  }
  return "?";
}

// Whether this build and this machine have it. Under ThreadSanitizer only `portable` is there: the sanitizer
// does not see stores made by intrinsics, and would call a race silent that is one.
bool has_isa(Isa isa);

// The best one that has_isa().
Isa best_isa();

// The one in use: what force_isa() said last, else the environment's MOELANE_ISA (portable | avx2 | avx512),
// else best_isa(). Throws Error(argument) when the environment names what is unknown or not there; so does,
// then, every function of rows.hpp that moves or converts whole rows. Call it once early to fail early.
Isa active_isa();

// Takes effect for all threads at their next call; throws Error(argument) when not has_isa(isa).
void force_isa(Isa isa);

}  // namespace moelane::cpu
