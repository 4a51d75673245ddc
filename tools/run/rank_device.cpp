#include "run/rank_device.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <vector>

#include "cli/option_values.hpp"
#include "machine/cards.hpp"

namespace moelane::tools {

std::size_t bytes_of(const TensorView& tensor) {
  std::size_t bytes = tensor.ndim == 0 ? 0 : size_of(tensor.dtype);
  for (int i = 0; i < tensor.ndim; ++i)
    bytes *= static_cast<std::size_t>(tensor.shape[static_cast<std::size_t>(i)]);
  return bytes;
}

RankDevice::RankDevice(World& world, const Options& options) {
  if (world.transport() != "peer") return;
  stream_ = std::make_shared<gpu::OwnStream>();
  share_card(world, options);
}

void RankDevice::share_card(World& world, const Options& options) {
  const gpu::Card card = gpu::card(card_of(world.rank()));
  multiprocessors_ = card.multiprocessors;
  std::array<char, 32> mine{};
  card.bus.copy(mine.data(), mine.size() - 1);
  std::vector<std::array<char, 32>> all(static_cast<std::size_t>(world.size()));
  world.all_gather(mine.data(), mine.size(), all.data());
  std::ptrdiff_t most = 0;  // ranks of a card: the same on every rank, so that all refuse or none
  for (const auto& bus : all) most = std::max(most, std::count(all.begin(), all.end(), bus));
  const int together = static_cast<int>(most);
  one_card_ = most == world.size();
  if (world.rank() == 0 && together > 1 && !options.threads() && !options.quiet && !find_mps().runs) {
    fmt::print(stderr,
               "moelane: {} processes share a GPU without MPS and take turns there, which is slow; "
               "nvidia-cuda-mps-control -d starts it\n",
               together);
  }
  const double percentage = options.threads() ? 100 : mps_percentage();
  whole_card_ = percentage == 100;
  num_sms_ = options.config.num_sms;
  if (num_sms_ == 0) num_sms_ = fair_share(multiprocessors_, together, percentage);
  // More blocks than fit on the card at once would wait for each other for ever; processes take turns there.
  const int allowed = options.threads() ? std::max(1, multiprocessors_ / together) : multiprocessors_;
  if (num_sms_ > allowed) {
    refuse("--num-sms", std::to_string(num_sms_),
           fmt::format("1 to {}: a card has {} multiprocessors for {} ranks", allowed, multiprocessors_,
                       options.threads() ? together : 1));
  }
}

void RankDevice::synchronize() const {
  if (on_card()) stream_->synchronize();
}

MirroredTensor RankDevice::allocate(DType type, std::initializer_list<std::int64_t> shape) const {
  MirroredTensor tensor;
  tensor.host = TensorView::dense(nullptr, type, shape);
  const std::size_t bytes = bytes_of(tensor.host);
  tensor.memory = std::make_shared<std::byte[]>(bytes);
  tensor.host.data = tensor.memory.get();
  tensor.engine = tensor.host;
  if (!on_card()) return tensor;
  tensor.card = gpu::Memory(bytes);
  tensor.engine = TensorView::dense(tensor.card.data(), type, shape, Device::cuda);
  return tensor;
}

MirroredTensor RankDevice::allocate_symmetric(Engine& engine, int lane, DType type,
                                              std::initializer_list<std::int64_t> shape) const {
  MirroredTensor tensor;
  tensor.engine = tensor.host = engine.allocate(lane, type, shape);
  if (!on_card()) return tensor;
  // Not touched before it is needed: most of a padded tensor never is.
  tensor.memory = std::make_shared_for_overwrite<std::byte[]>(bytes_of(tensor.engine));
  tensor.host = TensorView::dense(tensor.memory.get(), type, shape);
  return tensor;
}

void RankDevice::upload(const MirroredTensor& tensor, std::size_t begin, std::size_t bytes) const {
  if (!on_card()) return;
  gpu::upload(static_cast<std::byte*>(tensor.engine.data) + begin, tensor.as<std::byte>() + begin, bytes,
              stream());
}

void RankDevice::download(const MirroredTensor& tensor, std::size_t begin, std::size_t bytes) const {
  if (!on_card()) return;
  gpu::download(tensor.as<std::byte>() + begin, static_cast<const std::byte*>(tensor.engine.data) + begin,
                bytes, stream());
}

}  // namespace moelane::tools
