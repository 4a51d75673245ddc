#include "transport/shm/segment.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>

namespace moelane::detail::shm {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;

[[noreturn]] void refuse(const char* what, std::size_t bytes, int error) {
  throw Error(ErrorKind::transport, std::string(what) + " " + std::to_string(bytes) +
                                        " bytes of shared memory: " + std::strerror(error));
}

}  // namespace

Fd make_segment(std::size_t bytes) {
  Fd segment(memfd_create("moelane", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!segment) refuse("cannot make", bytes, errno);
  // Past this limit the kernel would send SIGXFSZ, which kills.
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && bytes > limit.rlim_cur) refuse("cannot make", bytes, EFBIG);
  if (bytes > static_cast<std::size_t>(std::numeric_limits<off_t>::max()))
    refuse("cannot make", bytes, EFBIG);
  int result;
  do result = ftruncate(segment.get(), static_cast<off_t>(bytes));
  while (result != 0 && errno == EINTR);
  if (result != 0) refuse("cannot make", bytes, errno);
  if (fcntl(segment.get(), F_ADD_SEALS, kSeals | F_SEAL_SEAL) != 0) refuse("cannot seal", bytes, errno);
  return segment;
}

std::shared_ptr<std::byte> map_segment(const Fd& segment, std::size_t bytes) {
  struct stat is {};
  if (fstat(segment.get(), &is) != 0) refuse("cannot look at", bytes, errno);
  const int seals = fcntl(segment.get(), F_GET_SEALS);
  if (is.st_size < 0 || static_cast<std::size_t>(is.st_size) != bytes || seals < 0 ||
      (seals & kSeals) != kSeals) {
    throw Error(ErrorKind::transport, "was sent a file of " + std::to_string(is.st_size) +
                                          " bytes instead of " + std::to_string(bytes) +
                                          " bytes of sealed memory");
  }
  void* const base =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, segment.get(), 0);
  if (base == MAP_FAILED) refuse("cannot map", bytes, errno);
  // Only taken up where shmem_enabled is "advise"; there it saves TLB misses on rows.
  madvise(base, bytes, MADV_HUGEPAGE);
  return {static_cast<std::byte*>(base), [bytes](std::byte* mapped) { munmap(mapped, bytes); }};
}

void reserve(const Fd& segment, std::byte* base, std::size_t offset, std::size_t bytes) {
  // Touched through the mapping first, because only that way huge pages are given. What fails here, or is not
  // there (before Linux 5.14), is told properly by fallocate.
  constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE
  if (bytes > 0) madvise(base + offset, bytes, kPopulateWrite);
  // In pieces, for the kernel undoes a whole call when a signal comes, and profilers send many.
  constexpr std::size_t kPiece = std::size_t{4} << 20;
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t piece = std::min(kPiece, bytes - done);
    if (fallocate(segment.get(), 0, static_cast<off_t>(offset + done), static_cast<off_t>(piece)) == 0) {
      done += piece;
    } else if (errno != EINTR) {
      refuse("cannot reserve", bytes, errno);
    }
  }
}

}  // namespace moelane::detail::shm
