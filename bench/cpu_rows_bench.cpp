// What rows.hpp costs: rows scattered in buffers far beyond the last cache (640 MiB to read from, as many to
// write to), and rows that the caches hold, written by one thread and read by another. GB/s count bytes read
// and bytes written, each once. Medians of interleaved repetitions are what to look at:
//   cpu_rows_bench --benchmark_enable_random_interleaving=true --benchmark_repetitions=9
//                  --benchmark_report_aggregates_only=true --benchmark_min_time=0.1

#include <benchmark/benchmark.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "cpu/rows.hpp"

namespace {

using moelane::DType;
using moelane::cpu::Store;

constexpr std::size_t kArena = std::size_t{640} << 20;
constexpr std::size_t kDispatchRow = 7392;  // 7168 fp8 and their scales
constexpr std::size_t kCombineRow = 2 * 7168;
constexpr int kMany = 8;

// Random bits that are numbers near 1 in bf16 and in fp16: sums of denormals would time the processor's slow
// path.
char* make_arena(bool huge_pages) {
  void* base = mmap(nullptr, kArena, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) std::abort();
  madvise(base, kArena, huge_pages ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  std::mt19937_64 random(1);
  for (std::size_t i = 0; i < kArena / 8; ++i) {
    static_cast<std::uint64_t*>(base)[i] = (random() & 0x83FF83FF83FF83FF) | 0x3C003C003C003C00;
  }
  return static_cast<char*>(base);
}

// Its rows of one size in random order, over and over.
class Rows {
 public:
  Rows(char* arena, std::size_t bytes, unsigned seed)
      : arena_(arena), stride_(bytes), order_(kArena / bytes) {
    std::iota(order_.begin(), order_.end(), 0U);
    std::shuffle(order_.begin(), order_.end(), std::mt19937(seed));
  }
  char* next() { return arena_ + stride_ * order_[at_++ % order_.size()]; }
  char* after_next() const { return arena_ + stride_ * order_[at_ % order_.size()]; }

 private:
  char* arena_;
  std::size_t stride_;
  std::vector<unsigned> order_;
  std::size_t at_ = 0;
};

char* source(bool huge) {
  static char* const small_pages = make_arena(false);
  if (!huge) return small_pages;
  static char* const huge_pages = make_arena(true);
  return huge_pages;
}
char* target(bool huge) {
  static char* const small_pages = make_arena(false);
  if (!huge) return small_pages;
  static char* const huge_pages = make_arena(true);
  return huge_pages;
}

enum class Way { cached, stream, library_memcpy, rep_movsb };

void copy_by(Way way, void* to, const void* from, std::size_t bytes) {
#if defined(__x86_64__)
  if (way == Way::rep_movsb) {
    asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes)::"memory");
    return;
  }
#endif
  if (way == Way::library_memcpy || way == Way::rep_movsb) {
    std::memcpy(to, from, bytes);
    return;
  }
  moelane::cpu::copy(to, from, bytes, way == Way::stream ? Store::stream : Store::cached);
}

void report(benchmark::State& state, std::size_t bytes) {
  state.counters["GB/s"] =
      benchmark::Counter(static_cast<double>(bytes) * static_cast<double>(state.iterations()),
                         benchmark::Counter::kIsRate, benchmark::Counter::kIs1000);
}

void far_copy(benchmark::State& state, Way way) {
  const bool huge = state.range(0) != 0;
  const auto ahead = static_cast<std::size_t>(state.range(1));
  Rows from(source(huge), kDispatchRow, 1);
  Rows to(target(huge), kDispatchRow, 2);
  for (auto _ : state) {
    const char* row = from.next();
    moelane::cpu::prefetch(from.after_next(), ahead);
    copy_by(way, to.next(), row, kDispatchRow);
  }
  moelane::cpu::store_fence();
  report(state, 2 * kDispatchRow);
}

void far_many(benchmark::State& state, Way way) {
  const bool huge = state.range(0) != 0;
  Rows from(source(huge), kDispatchRow, 1);
  Rows to(target(huge), kDispatchRow, 2);
  for (auto _ : state) {
    void* dst[kMany];
    for (auto& one : dst) one = to.next();
    const char* row = from.next();
    if (way == Way::cached || way == Way::stream) {
      moelane::cpu::copy_to_many(dst, kMany, row, kDispatchRow,
                                 way == Way::stream ? Store::stream : Store::cached);
    } else {
      for (void* one : dst) copy_by(way, one, row, kDispatchRow);
    }
  }
  moelane::cpu::store_fence();
  report(state, (1 + kMany) * kDispatchRow);
}

void far_sum(benchmark::State& state, Store store) {
  const bool huge = state.range(0) != 0;
  Rows from(source(huge), kCombineRow, 1);
  Rows to(target(huge), kCombineRow, 2);
  const float weights[kMany] = {0.3F, 0.2F, 0.1F, 0.1F, 0.1F, 0.1F, 0.05F, 0.05F};
  for (auto _ : state) {
    const void* rows[kMany];
    for (auto& row : rows) row = from.next();
    moelane::cpu::weighted_sum({.rows = rows,
                                .weights = weights,
                                .n = kMany,
                                .in = DType::bf16,
                                .hidden = kCombineRow / 2,
                                .out = to.next(),
                                .out_type = DType::bf16,
                                .store = store});
  }
  moelane::cpu::store_fence();
  report(state, (1 + kMany) * kCombineRow);
}

std::uint64_t read_all(const char* from, std::size_t bytes) {
  std::uint64_t sum[8] = {};
  for (std::size_t i = 0; i + 64 <= bytes; i += 64) {
    for (std::size_t w = 0; w < 8; ++w) {
      std::uint64_t word;
      std::memcpy(&word, from + i + 8 * w, 8);
      sum[w] += word;
    }
  }
  return std::accumulate(std::begin(sum), std::end(sum), std::uint64_t{0});
}

double now_us(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) * 1e-3;
}

double median(std::vector<double>& values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

// One thread copies `rows` rows, another then reads what was written, in turn: what a store kind costs both.
// The counters are medians of each one's own time, which is robust where other work shares the cores.
void handed_over(benchmark::State& state, Store store) {
  const std::size_t bytes = static_cast<std::size_t>(state.range(0)) * kDispatchRow;
  const char* from = source(false);
  char* to = target(false);
  std::atomic<std::uint64_t> written{0};
  std::atomic<std::uint64_t> read{0};
  std::vector<double> writes;
  std::vector<double> reads;
  const clockid_t clock = bytes < 1 << 20 ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID;
  const auto timed = [clock](std::vector<double>& times, auto&& work) {
    const double start = now_us(clock);
    work();
    times.push_back(now_us(clock) - start);
  };
  constexpr auto kEnd = ~std::uint64_t{0};
  std::thread reader([&] {
    for (std::uint64_t turn = 1;; ++turn) {
      std::uint64_t seen = 0;
      while ((seen = written.load(std::memory_order_acquire)) < turn) std::this_thread::yield();
      if (seen == kEnd) return;
      timed(reads, [&] { benchmark::DoNotOptimize(read_all(to, bytes)); });
      read.store(turn, std::memory_order_release);
    }
  });
  std::uint64_t turn = 0;
  for (auto _ : state) {
    timed(writes, [&] {
      for (std::size_t at = 0; at < bytes; at += kDispatchRow) {
        moelane::cpu::copy(to + at, from + at, kDispatchRow, store);
      }
      moelane::cpu::store_fence();
    });
    written.store(++turn, std::memory_order_release);
    while (read.load(std::memory_order_acquire) < turn) std::this_thread::yield();
  }
  written.store(kEnd, std::memory_order_release);
  reader.join();
  state.counters["write_us"] = median(writes);
  state.counters["read_us"] = median(reads);
}

// The same thread writes over and over, and nobody reads.
void near_copy(benchmark::State& state, Way way) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  for (auto _ : state) copy_by(way, target(false), source(false), bytes);
  moelane::cpu::store_fence();
  report(state, 2 * bytes);
}

void near_sum(benchmark::State& state, DType in, DType out) {
  const void* rows[kMany];
  for (std::size_t i = 0; i < kMany; ++i) rows[i] = source(false) + i * 4 * 7168;
  const float weights[kMany] = {0.3F, 0.2F, 0.1F, 0.1F, 0.1F, 0.1F, 0.05F, 0.05F};
  for (auto _ : state) {
    moelane::cpu::weighted_sum({.rows = rows,
                                .weights = weights,
                                .n = kMany,
                                .in = in,
                                .hidden = 7168,
                                .out = target(false),
                                .out_type = out});
  }
  report(state, (kMany * size_of(in) + size_of(out)) * 7168);
}

const std::vector<std::string> kFar = {"huge_pages"};
const std::vector<std::string> kFarAhead = {"huge_pages", "next_row_prefetch"};

BENCHMARK_CAPTURE(far_copy, cached, Way::cached)->ArgNames(kFarAhead)->ArgsProduct({{0, 1}, {0, 1024}});
BENCHMARK_CAPTURE(far_copy, stream, Way::stream)->ArgNames(kFarAhead)->ArgsProduct({{0, 1}, {0, 512, 1024}});
BENCHMARK_CAPTURE(far_copy, memcpy, Way::library_memcpy)->ArgNames(kFarAhead)->ArgsProduct({{0, 1}, {0}});
BENCHMARK_CAPTURE(far_copy, rep_movsb, Way::rep_movsb)->ArgNames(kFarAhead)->ArgsProduct({{0, 1}, {0}});
BENCHMARK_CAPTURE(far_many, cached, Way::cached)->ArgNames(kFar)->Arg(0)->Arg(1);
BENCHMARK_CAPTURE(far_many, stream, Way::stream)->ArgNames(kFar)->Arg(0)->Arg(1);
BENCHMARK_CAPTURE(far_many, memcpy, Way::library_memcpy)->ArgNames(kFar)->Arg(0)->Arg(1);
BENCHMARK_CAPTURE(far_many, rep_movsb, Way::rep_movsb)->ArgNames(kFar)->Arg(0)->Arg(1);
BENCHMARK_CAPTURE(far_sum, cached, Store::cached)->ArgNames(kFar)->Arg(0)->Arg(1);
BENCHMARK_CAPTURE(far_sum, stream, Store::stream)->ArgNames(kFar)->Arg(0)->Arg(1);
BENCHMARK_CAPTURE(handed_over, cached, Store::cached)
    ->ArgName("rows")
    ->RangeMultiplier(4)
    ->Range(1, 1 << 16)
    ->UseRealTime();
BENCHMARK_CAPTURE(handed_over, stream, Store::stream)
    ->ArgName("rows")
    ->RangeMultiplier(4)
    ->Range(1, 1 << 16)
    ->UseRealTime();
BENCHMARK_CAPTURE(near_copy, cached, Way::cached)->ArgName("bytes")->Arg(64)->Arg(512)->Arg(7392)->Arg(59136);
BENCHMARK_CAPTURE(near_copy, memcpy, Way::library_memcpy)
    ->ArgName("bytes")
    ->Arg(64)
    ->Arg(512)
    ->Arg(7392)
    ->Arg(59136);
BENCHMARK_CAPTURE(near_copy, rep_movsb, Way::rep_movsb)
    ->ArgName("bytes")
    ->Arg(64)
    ->Arg(512)
    ->Arg(7392)
    ->Arg(59136);
BENCHMARK_CAPTURE(near_copy, stream, Way::stream)->ArgName("bytes")->Arg(64)->Arg(512)->Arg(7392)->Arg(59136);
BENCHMARK_CAPTURE(near_sum, bf16_bf16, DType::bf16, DType::bf16);
BENCHMARK_CAPTURE(near_sum, fp16_bf16, DType::fp16, DType::bf16);
BENCHMARK_CAPTURE(near_sum, fp32_fp32, DType::fp32, DType::fp32);

}  // namespace

BENCHMARK_MAIN();
