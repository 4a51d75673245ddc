#include "bench/card_floor.hpp"

#include <algorithm>

#include "bench/buffer_sets.hpp"
#include "reference/expected_dispatch.hpp"
#include "routing/random.hpp"
#include "run/timing.hpp"

namespace moelane::tools {
namespace {

constexpr int kRepeats = 9;
constexpr std::size_t kBlock = std::size_t{4} << 20;  // of random bytes

// What one kernel moves: each row of one region to up to `copies` rows of another; or, to be summed, from
// them.
struct Transfer {
  bool gather;
  int copies;
  std::size_t bytes;                              // of a row
  std::vector<std::int32_t> one = {}, many = {};  // numbers of rows: [rows], [rows, copies] with -1 for none
  std::size_t next = 0;                           // the end of what the last row has

  void row(std::int32_t number) {
    one.push_back(number);
    next = many.size();
    many.resize(next + static_cast<std::size_t>(copies), -1);
  }
  void to(std::int32_t number) { many[next++] = number; }
};

std::size_t words(std::size_t bytes) { return (bytes + 15) / 16 * 16; }

// What all ranks together move in a step: the kernels of each phase, one after the other.
struct Step {
  std::vector<Transfer> dispatch, combine;
};

Step step_of(const RankContext& c, const std::vector<GroupStep>& groups) {
  struct Home {
    std::int32_t row;
    int peer;
  };
  const Config& config = c.options.config;
  const bool direct = c.direct();
  std::vector<std::vector<Home>> tokens;  // of all groups: where their rows go, by peer
  std::vector<std::size_t> first;         // token of each group
  for (const GroupStep& group : groups) {
    first.push_back(tokens.size());
    tokens.resize(tokens.size() + static_cast<std::size_t>(group.tokens));
  }
  std::int32_t rows = 0, slots = 0, sums = 0;
  for (int peer = 0; peer < c.options.ranks; ++peer) {
    const auto expected = expected_dispatch(config, c.placement.rank_of(), peer, groups, c.options.capacity);
    for (const ExpectedRow& r : expected.rows) {
      const std::size_t token = first[static_cast<std::size_t>(r.group)] + static_cast<std::size_t>(r.token);
      tokens[token].push_back({rows++, peer});
    }
  }
  const int tp = config.tp_size, topk = config.topk;
  const std::size_t row = words(config.row_bytes() + config.scale_row_bytes()),
                    answer = words(config.answer_bytes());
  Transfer send{false, topk, row}, forward{false, topk, row};
  Transfer give{false, tp, answer}, sum{true, topk, answer};
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    const auto& homes = tokens[t];
    send.row(static_cast<std::int32_t>(t));
    for (std::size_t i = 0; i < homes.size(); ++i) {
      if (direct) {
        send.to(homes[i].row);
        continue;
      }
      if (i == 0 || homes[i].peer != homes[i - 1].peer) {
        send.to(slots);
        forward.row(slots++);
      }
      forward.to(homes[i].row);
      give.row(homes[i].row);
      for (int j = 0; j < tp; ++j) give.to(homes[i].row * tp + j);
    }
    for (int j = 0; j < tp; ++j) {  // every rank of a group sums
      sum.row(sums++);
      for (const Home& home : homes) sum.to(direct ? home.row : home.row * tp + j);
    }
  }
  if (direct) return {{send}, {sum}};
  return {{send, forward}, {give, sum}};
}

// A transfer's rows on the card, in memory of their own.
class Rows {
 public:
  Rows(const Transfer& transfer, const gpu::Memory& random, const RankDevice& device)
      : transfer_(transfer), device_(device) {
    one_ = region(transfer.one, one_pointers_);
    many_ = region(transfer.many, many_pointers_);
    fill(transfer.gather ? many_ : one_, random);
  }

  void move() const {
    const auto* one = reinterpret_cast<void* const*>(one_pointers_.data());
    const auto* many = reinterpret_cast<void* const*>(many_pointers_.data());
    const auto rows = static_cast<std::int64_t>(transfer_.one.size()),
               bytes = static_cast<std::int64_t>(transfer_.bytes);
    if (transfer_.gather) {
      gpu::gather_rows(many, one, rows, transfer_.copies, bytes, device_.multiprocessors(), device_.stream());
    } else {
      gpu::copy_rows(one, many, rows, transfer_.copies, bytes, device_.multiprocessors(), device_.stream());
    }
  }

 private:
  gpu::Memory region(const std::vector<std::int32_t>& numbers, gpu::Memory& pointers) const {
    std::int32_t most = -1;
    for (const std::int32_t number : numbers) most = std::max(most, number);
    gpu::Memory memory((static_cast<std::size_t>(most) + 1) * transfer_.bytes);
    std::vector<std::byte*> at;
    for (const std::int32_t number : numbers) {
      at.push_back(number < 0 ? nullptr : memory.data() + static_cast<std::size_t>(number) * transfer_.bytes);
    }
    pointers = gpu::Memory(at.size() * sizeof at[0]);
    gpu::upload(pointers.data(), at.data(), pointers.bytes(), device_.stream());
    return memory;
  }

  // By the card itself: copies of one block to all whole blocks, and one to the end.
  void fill(const gpu::Memory& memory, const gpu::Memory& random) const {
    const std::size_t block = std::min(random.bytes(), memory.bytes());
    if (block == 0) return;
    std::vector<const std::byte*> lists{random.data()};
    for (std::size_t at = 0; at + block <= memory.bytes(); at += block) lists.push_back(memory.data() + at);
    lists.push_back(memory.data() + memory.bytes() - block);
    const gpu::Memory pointers(lists.size() * sizeof lists[0]);
    gpu::upload(pointers.data(), lists.data(), pointers.bytes(), device_.stream());
    auto* const* from = reinterpret_cast<void* const*>(pointers.data());
    gpu::copy_rows(from, from + 1, 1, static_cast<int>(lists.size()) - 1, static_cast<std::int64_t>(block),
                   device_.multiprocessors(), device_.stream());
    device_.synchronize();  // before the pointers go
  }

  const Transfer& transfer_;
  const RankDevice& device_;
  gpu::Memory one_, many_, one_pointers_, many_pointers_;
};

// Microseconds of a step's kernels; all steps in turn until they have touched more than the cache holds
// twice.
double time(const std::vector<const std::vector<Transfer>*>& steps, const gpu::Memory& random,
            const RankDevice& device) {
  double bytes = 0;
  for (const Transfer& t : *steps.front()) {
    bytes += static_cast<double>(t.bytes) * static_cast<double>(t.one.size() + t.many.size());
  }
  const int sets = std::max(sets_beyond_cache(bytes, true), static_cast<int>(steps.size()));
  std::vector<Rows> rows;
  for (int set = 0; set < sets; ++set) {
    for (const Transfer& t : *steps[static_cast<std::size_t>(set) % steps.size()])
      rows.emplace_back(t, random, device);
  }
  gpu::Stopwatch watch;
  std::vector<double> us;
  for (int repeat = 0; repeat <= kRepeats; ++repeat) {
    watch.start(device.stream());
    for (const Rows& r : rows) r.move();
    watch.stop(device.stream());
    if (const double all = watch.us(); repeat > 0) us.push_back(all / sets);
  }
  return median(us);
}

nlohmann::json measure(const RankContext& c, const std::vector<std::vector<GroupStep>>& all_groups) {
  std::vector<std::uint64_t> block(kBlock / sizeof(std::uint64_t));
  Random random(c.options.seed, 0, 0, stream::first_free + 65);
  for (std::uint64_t& word : block) word = random.next();
  const gpu::Memory bytes(kBlock);
  gpu::upload(bytes.data(), block.data(), kBlock, c.device.stream());
  std::vector<Step> steps;
  std::vector<const std::vector<Transfer>*> dispatch, combine;
  for (const auto& groups : all_groups) steps.push_back(step_of(c, groups));
  for (const Step& step : steps) {
    dispatch.push_back(&step.dispatch);
    combine.push_back(&step.combine);
  }
  return {{"dispatch_us", time(dispatch, bytes, c.device)}, {"combine_us", time(combine, bytes, c.device)}};
}

}  // namespace

nlohmann::json measure_card_floor(RankContext& c, const std::vector<std::vector<GroupStep>>& groups) {
  if (!c.device.one_card() || !c.device.whole_card()) return nullptr;
  nlohmann::json floor;
  if (c.world.rank() == 0) floor = measure(c, groups);
  c.world.barrier();
  return floor;
}

}  // namespace moelane::tools
