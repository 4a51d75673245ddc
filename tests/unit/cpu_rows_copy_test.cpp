#include "cpu_rows.hpp"

namespace moelane::cpu {
namespace {

std::vector<std::size_t> sizes_to_copy() {
  std::vector<std::size_t> sizes;
  for (std::size_t size = 0; size <= 200; ++size) sizes.push_back(size);
  for (std::size_t size = 250; size <= 330; ++size) sizes.push_back(size);
  for (std::size_t size : {511U, 512U, 575U, 576U, 700U, 1023U, 4096U, 7391U, 7392U, 14336U, 70001U})
    sizes.push_back(size);
  return sizes;
}

TEST_P(CpuRows, CopiesToOneAndMany) {
  std::mt19937_64 random(29);
  for (std::size_t size : sizes_to_copy()) {
    for (int n : {1, 1, 0, 3, 8}) {
      for (Store store : {Store::cached, Store::stream}) {
        const std::size_t from_at = random() % 67;
        Bytes from(from_at + size);
        for (auto& byte : from) byte = static_cast<unsigned char>(random());
        std::vector<Bytes> to(static_cast<std::size_t>(n));
        std::vector<Bytes> wanted;
        std::vector<void*> pointers;
        for (Bytes& one : to) {
          const std::size_t to_at = random() % 131;
          one.assign(to_at + size + 70, 0xA5);
          wanted.push_back(one);
          if (size != 0) std::memcpy(wanted.back().data() + to_at, from.data() + from_at, size);
          pointers.push_back(one.data() + to_at);
        }
        if (n == 1) {
          copy(pointers[0], from.data() + from_at, size, store);
        } else {
          copy_to_many(pointers.data(), n, from.data() + from_at, size, store);
        }
        store_fence();
        for (std::size_t i = 0; i < to.size(); ++i)
          ASSERT_EQ(to[i], wanted[i]) << size << " bytes to " << i << " of " << n;
      }
    }
  }
}

TEST_P(CpuRows, PrefetchReachesPastTheEndUnharmed) {
  const char row[3] = {};
  prefetch(row, 4096);
  prefetch(nullptr, 0);
}

// --- Refusals and the choice of the instruction set. ---

TEST_P(CpuRows, RefusesOtherTypes) {
  float out = 0;
  const void* rows[] = {&out};
  const float weight = 1;
  const SumArgs args{.rows = rows, .weights = &weight, .n = 1, .hidden = 1, .out = &out};
  for (DType type : {DType::fp8_e4m3, DType::int32, DType::int64, DType::uint8}) {
    SumArgs in = args;
    in.in = type;
    EXPECT_THROW(weighted_sum(in), Error);
    SumArgs to = args;
    to.out_type = type;
    EXPECT_THROW(weighted_sum(to), Error);
    EXPECT_THROW(from_float(1, &out, type), Error);
    EXPECT_THROW(from_float_row(&out, &weight, 1, type), Error);
    if (type == DType::fp8_e4m3) continue;
    EXPECT_THROW(to_float(&weight, type), Error);
    EXPECT_THROW(to_float_row(&out, &weight, 1, type), Error);
  }
}

TEST(CpuIsa, ForcedIsActive) {
  EXPECT_TRUE(has_isa(Isa::portable));
  EXPECT_TRUE(has_isa(best_isa()));
  for (Isa isa : {Isa::portable, Isa::avx2, Isa::avx512}) {
    if (has_isa(isa)) {
      force_isa(isa);
      EXPECT_EQ(active_isa(), isa);
    } else {
      EXPECT_THROW(force_isa(isa), Error);
    }
  }
  force_isa(best_isa());
}

// In a process of its own each: the environment is read once.
TEST(CpuIsaDeathTest, TheEnvironmentChooses) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto with = [](const char* value, auto&& check) {
    ::setenv("MOELANE_ISA", value, 1);
    std::exit(check() ? 0 : 1);
  };
  for (Isa isa : here()) {
    EXPECT_EXIT(with(std::string(name_of(isa)).c_str(), [&] { return active_isa() == isa; }),
                ::testing::ExitedWithCode(0), "");
  }
  EXPECT_EXIT(with("", [] { return active_isa() == best_isa(); }), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(with("sse9",
                   [] {
                     try {
                       active_isa();
                     } catch (const Error& error) {
                       return error.kind() == ErrorKind::argument &&
                              std::string(error.what()).find("MOELANE_ISA=sse9") != std::string::npos;
                     }
                     return false;
                   }),
              ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace moelane::cpu
