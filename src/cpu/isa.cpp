#include "cpu/isa.hpp"

#include <atomic>
#include <cstdlib>
#include <string>

#include "cpu/kernels.hpp"
#include "moelane/error.hpp"

namespace moelane::cpu {
namespace {

constexpr Isa kAll[] = {Isa::avx512, Isa::avx2, Isa::portable};  // best first

std::atomic<const Kernels*> active{nullptr};

const Kernels* built(Isa isa) {
  switch (isa) {
    case Isa::portable:
      return portable_kernels();
    case Isa::avx2:
      return avx2_kernels();
    case Isa::avx512:
      return avx512_kernels();
  }
  return nullptr;
}

bool machine_has([[maybe_unused]] Isa isa) {
#if defined(__x86_64__)
  switch (isa) {
    case Isa::portable:
      return true;
    case Isa::avx2:  // every processor with AVX2 has F16C, which clang 14 cannot ask for
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    case Isa::avx512:
      return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  }
#endif
  return isa == Isa::portable;
}

[[noreturn]] void refuse(const std::string& what) {
  std::string there;
  for (Isa isa : kAll) {
    if (has_isa(isa)) there += (there.empty() ? "" : ", ") + std::string(name_of(isa));
  }
  throw Error(ErrorKind::argument, what + " is not an instruction set that is here; here are " + there);
}

const Kernels* chosen_at_start() {
  const char* wanted = std::getenv("MOELANE_ISA");
  if (wanted == nullptr || *wanted == '\0') return built(best_isa());
  for (Isa isa : kAll) {
    if (name_of(isa) == wanted && has_isa(isa)) return built(isa);
  }
  refuse("MOELANE_ISA=" + std::string(wanted));
}

}  // namespace

bool has_isa(Isa isa) { return machine_has(isa) && built(isa) != nullptr; }

Isa best_isa() {
  for (Isa isa : kAll) {
    if (has_isa(isa)) return isa;
  }
  return Isa::portable;
}

const Kernels& active_kernels() {
  const Kernels* now = active.load(std::memory_order_acquire);
  if (now != nullptr) return *now;
  const Kernels* first = chosen_at_start();
  // A force_isa() that came meanwhile wins.
  return active.compare_exchange_strong(now, first, std::memory_order_acq_rel) ? *first : *now;
}

Isa active_isa() { return active_kernels().isa; }

void force_isa(Isa isa) {
  if (!has_isa(isa)) refuse("force_isa(" + std::string(name_of(isa)) + ")");
  active.store(built(isa), std::memory_order_release);
}

}  // namespace moelane::cpu
