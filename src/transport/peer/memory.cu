#include <cuda.h>

#include <string>

#include "cuda/check.hpp"
#include "transport/peer/memory.hpp"

// cudaGetDriverEntryPointByVersion came with CUDA 12.5.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace moelane::peer {
namespace {

// The driver's functions, found at run time: programs that use no GPU start without a driver.
template <class Function>
Function* driver(const char* name) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  gpu::check(cudaGetDriverEntryPoint(name, &function, cudaEnableDefault, &found),
             "find the driver's functions");
  if (found != cudaDriverEntryPointSuccess || function == nullptr) {
    throw Error(ErrorKind::transport,
                std::string("this driver has no ") + name + "; moelane needs one of CUDA 12");
  }
  return reinterpret_cast<Function*>(function);
}
#define MOELANE_DRIVER(name) driver<decltype(name)>(#name)

void check(CUresult result, const std::string& doing) {
  if (result == CUDA_SUCCESS) return;
  const char* text = nullptr;
  MOELANE_DRIVER(cuGetErrorString)(result, &text);
  throw Error(ErrorKind::transport,
              "CUDA could not " + doing + ": " + (text != nullptr ? text : "unknown error"));
}

CUmemAllocationProp property_of(int device) {
  CUmemAllocationProp property{};
  property.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  property.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  property.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  property.location.id = device;
  return property;
}

std::size_t whole_granules(int device, std::size_t bytes) {
  const CUmemAllocationProp property = property_of(device);
  std::size_t granule = 0;
  check(MOELANE_DRIVER(cuMemGetAllocationGranularity)(&granule, &property, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
        "ask for the granularity of memory");
  return (bytes + granule - 1) / granule * granule;
}

}  // namespace

DeviceMemory::DeviceMemory(int device, std::size_t bytes, const std::vector<int>& readers)
    : size_(whole_granules(device, bytes)), device_(device) {
  const CUmemAllocationProp property = property_of(device);
  check(MOELANE_DRIVER(cuMemCreate)(&handle_, size_, &property, 0),
        "allocate a heap of " + std::to_string(size_) + " bytes on card " + std::to_string(device));
  try {
    map(readers);
    gpu::clear(data(), size_);
  } catch (...) {
    release();
    throw;
  }
}

DeviceMemory::DeviceMemory(const detail::shm::Fd& exported, int device, std::size_t bytes)
    : size_(whole_granules(device, bytes)), device_(device) {
  check(MOELANE_DRIVER(cuMemImportFromShareableHandle)(
            &handle_, reinterpret_cast<void*>(static_cast<std::intptr_t>(exported.get())),
            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
        "open a peer's heap");
  try {
    map({device});
  } catch (...) {
    release();
    throw;
  }
}

void DeviceMemory::map(const std::vector<int>& readers) {
  check(MOELANE_DRIVER(cuMemAddressReserve)(&address_, size_, 0, 0, 0), "reserve addresses for a heap");
  check(MOELANE_DRIVER(cuMemMap)(address_, size_, 0, handle_, 0), "map a heap");
  std::vector<CUmemAccessDesc> access;
  for (const int reader : readers) {
    CUmemAccessDesc& one = access.emplace_back();
    one.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    one.location.id = reader;
    one.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  }
  check(MOELANE_DRIVER(cuMemSetAccess)(address_, size_, access.data(), access.size()),
        "let a card reach a heap of another");
}

detail::shm::Fd DeviceMemory::exported() const {
  int fd = -1;
  check(
      MOELANE_DRIVER(cuMemExportToShareableHandle)(&fd, handle_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
      "hand out a heap");
  return detail::shm::Fd(fd);
}

// What fails here has failed with the card; nothing is left to be done about it.
void DeviceMemory::release() noexcept {
  try {
    if (address_ != 0) {
      MOELANE_DRIVER(cuMemUnmap)(address_, size_);
      MOELANE_DRIVER(cuMemAddressFree)(address_, size_);
    }
    if (handle_ != 0) MOELANE_DRIVER(cuMemRelease)(handle_);
  } catch (const Error&) {
  }
}

DeviceMemory::~DeviceMemory() { release(); }

}  // namespace moelane::peer
