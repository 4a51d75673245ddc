#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "transport/shm/socket.hpp"

// Memory of a card that other processes and other cards can map. It is made of the driver's virtual memory,
// not of cudaMalloc and CUDA IPC handles: the card keeps the bytes until the last mapping is gone, so that
// ranks may let go of them in any order.
namespace moelane::peer {

class DeviceMemory {
 public:
  // `bytes` zeroed bytes of card `device`, for the cards `readers` of this process too.
  DeviceMemory(int device, std::size_t bytes, const std::vector<int>& readers);
  // Those of another process, by the descriptor that it exported, for card `device`.
  DeviceMemory(const detail::shm::Fd& exported, int device, std::size_t bytes);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  std::byte* data() const { return reinterpret_cast<std::byte*>(address_); }
  detail::shm::Fd exported() const;
  std::size_t size() const { return size_; }

 private:
  void map(const std::vector<int>& readers);
  void release() noexcept;

  unsigned long long handle_ = 0, address_ = 0;
  std::size_t size_ = 0;  // whole granules
  int device_;
};

}  // namespace moelane::peer
