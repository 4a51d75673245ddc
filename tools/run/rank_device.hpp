#pragma once

#include <cstddef>
#include <initializer_list>
#include <memory>

#include "cli/options.hpp"
#include "cuda/device.hpp"
#include "moelane/engine.hpp"

namespace moelane::tools {

// A tensor of a rank, as the engine takes it and as this program reads and writes it: the same memory on CPU
// ranks; on a card, `host` is another, and RankDevice copies between the two.
struct MirroredTensor {
  TensorView engine, host;
  std::shared_ptr<std::byte[]> memory;  // behind `host`, unless that is the engine's own
  gpu::Memory card;                     // behind `engine`, likewise

  explicit operator bool() const { return static_cast<bool>(engine); }
  template <class T>
  T* as() const {
    return static_cast<T*>(host.data);
  }
};

std::size_t bytes_of(const TensorView& tensor);  // dense

// Where a rank's tensors lie and its calls run: in host memory, or on its card.
class RankDevice {
 public:
  // Collective where the world's ranks are on cards. Throws Error(argument) when they may not have the
  // multiprocessors that the options ask for.
  RankDevice(World& world, const Options& options);

  bool on_card() const { return stream_ != nullptr; }
  Stream stream() const { return on_card() ? Stream(*stream_) : Stream{}; }
  void synchronize() const;  // waits for the stream

  // Of cards, 0 on CPU ranks: what a call may use, and what there is.
  int num_sms() const { return num_sms_; }
  int multiprocessors() const { return multiprocessors_; }
  // All ranks are on one card, so that their clock is the same one; and this rank may use the whole of it.
  bool one_card() const { return one_card_; }
  bool whole_card() const { return whole_card_; }

  MirroredTensor allocate(DType type, std::initializer_list<std::int64_t> shape) const;
  MirroredTensor allocate_symmetric(Engine& engine, int lane, DType type,
                                    std::initializer_list<std::int64_t> shape) const;

  // Bytes [begin, begin + bytes) from host to engine and back. They wait for the stream.
  void upload(const MirroredTensor& tensor, std::size_t begin, std::size_t bytes) const;
  void download(const MirroredTensor& tensor, std::size_t begin, std::size_t bytes) const;
  void upload(const MirroredTensor& tensor) const { upload(tensor, 0, bytes_of(tensor.host)); }
  void download(const MirroredTensor& tensor) const { download(tensor, 0, bytes_of(tensor.host)); }

 private:
  void share_card(World& world, const Options& options);

  std::shared_ptr<gpu::OwnStream> stream_;
  int num_sms_ = 0, multiprocessors_ = 0;
  bool one_card_ = false, whole_card_ = false;
};

}  // namespace moelane::tools
