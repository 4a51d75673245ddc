#include "cpu_rows.hpp"

namespace moelane::cpu {
namespace {

// --- The caller's floating-point modes. ---

#if defined(__x86_64__)
using Modes = unsigned;
Modes modes() { return _mm_getcsr() & ~0x3FU; }
void set_modes(Modes m) { _mm_setcsr(m); }
// Flush to zero, denormals are zero, each rounding, and all with traps for the last.
constexpr Modes kStrange[] = {0x9F80, 0x1FC0, 0x9FC0, 0x3F80, 0x5F80, 0x7F80, 0xFFC0, 0x8040};
#elif defined(__aarch64__)
using Modes = std::uint64_t;
Modes modes() {
  Modes m;
  asm volatile("mrs %0, fpcr" : "=r"(m));
  return m;
}
void set_modes(Modes m) { asm volatile("msr fpcr, %0" ::"r"(m)); }
constexpr Modes kStrange[] = {1U << 24, 1U << 22, 2U << 22, 3U << 22, 1U << 25, 1U << 19, 0x3F80000};
#else
using Modes = int;
Modes modes() { return std::fegetround(); }
void set_modes(Modes m) { std::fesetround(m); }
constexpr Modes kStrange[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
#endif

TEST_P(CpuRows, SumsInAnyFloatingPointMode) {
  std::mt19937_64 random(19);
  const Modes ours = modes();
  for (Modes strange : kStrange) {
    for (DType in : kFloats) {
      for (DType out : kFloats) {
        for (Data data : {Data::tame, Data::tiny, Data::any}) {
          const Case c(in, out, 131, 3, data, random);
          const Bytes wanted = c.with(wanted_sum, true, Store::cached);
          Modes after = 0;
          const Bytes got = c.with(
              [&](const SumArgs& args) {
                set_modes(strange);
                weighted_sum(args);
                after = modes();
                set_modes(ours);
              },
              true, Store::stream);
          ASSERT_EQ(got, wanted) << std::hex << strange << " " << name_of(in) << " " << name_of(out);
          ASSERT_EQ(after, strange);
        }
      }
    }
  }
}

TEST_P(CpuRows, ConvertsInAnyFloatingPointMode) {
  std::mt19937_64 random(23);
  const Modes ours = modes();
  for (Modes strange : kStrange) {
    for (DType type : kSources) {
      constexpr std::size_t kN = 3001;
      Bytes in(kN * size_of(type));
      fill(in.data(), kN, type, Data::any, random);
      std::vector<float> wanted(kN);
      std::vector<float> got(kN);
      Bytes wanted_back(kN * size_of(type));
      Bytes back(wanted_back.size());
      for (std::size_t i = 0; i < kN; ++i) {
        wanted[i] = wanted_float(in.data() + i * size_of(type), type);
        if (type != DType::fp8_e4m3) wanted_element(wanted[i], wanted_back.data() + i * size_of(type), type);
      }
      set_modes(strange);
      to_float_row(got.data(), in.data(), kN, type);
      if (type != DType::fp8_e4m3) from_float_row(back.data(), got.data(), kN, type);
      const Modes after = modes();
      set_modes(ours);
      ASSERT_EQ(after, strange);
      ASSERT_EQ(std::memcmp(got.data(), wanted.data(), 4 * kN), 0)
          << std::hex << strange << " " << name_of(type);
      ASSERT_EQ(back, wanted_back) << std::hex << strange << " " << name_of(type);
    }
  }
}

}  // namespace
}  // namespace moelane::cpu
