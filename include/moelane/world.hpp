#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace moelane {

// Where a GPU rank's call runs: a cudaStream_t, null for the default stream. CPU ranks take no notice.
struct Stream {
  void* handle = nullptr;
};

namespace detail {
class WorldImpl;
}

// A set of ranks that exchange tokens: any subset of processes (or threads), and a process may belong to
// several. Copies refer to the same membership. Calls on it are collective: every rank makes the same ones in
// the same order.
class World {
 public:
  // `ranks` ranks in this process; hand element r to the thread that plays rank r. Waits are bounded by
  // `timeout` seconds, here as below.
  static std::vector<World> threads(int ranks, double timeout = 30.0);

  // Joins the processes of this machine (and user) that name the same world, over POSIX shared memory that no
  // file system sees. Throws Error(timeout) that counts who was missing, Error(argument) for a rank or size
  // that cannot be.
  static World shm(const std::string& name, int rank, int ranks, double timeout = 30.0);

  // As shm, with rank, size and name from a launcher's environment: RANK and WORLD_SIZE (as torchrun sets
  // them), and MOELANE_WORLD or else MASTER_ADDR:MASTER_PORT.
  static World shm_from_environment(double timeout = 30.0);

  // Joins the processes of an MPI job, on one machine or several: those of `communicator` (the address of an
  // MPI_Comm of the application, which has initialised MPI), or of MPI_COMM_WORLD if null; MPI is then
  // initialised where nobody has, and ended when the process exits. Collective over the communicator. Ranks
  // of one machine share memory, others send messages, which move while calls wait. Throws Error(transport)
  // when there is no plug-in for the process's MPI library (Open MPI or MPICH).
  static World mpi(double timeout = 30.0, const void* communicator = nullptr);

  // GPU ranks whose heaps are addressable by each other: on one card, or on cards with peer access (NVLink).
  // `meeting` is a world of the same ranks, of threads() or shm(), through which they find each other;
  // `device` is this rank's card, -1 for the calling thread's current one. Throws Error(transport) when there
  // is no card, when two ranks' cards have no peer access, and in a build without CUDA.
  static World peer(World meeting, int device = -1);

  int rank() const;
  int size() const;
  const std::string& transport() const;  // "threads", "shm", "mpi" or "peer"

  void barrier();
  // GPU ranks: puts a kernel on the stream that ends when every rank's has begun, or when the bound passes;
  // to start ranks together. Collective.
  void barrier(Stream stream);
  // Every rank gives `bytes` bytes (the same number everywhere) and gets those of all, in rank order, in
  // `all`.
  void all_gather(const void* mine, std::size_t bytes, void* all);

  explicit World(std::shared_ptr<detail::WorldImpl> impl) : impl_(std::move(impl)) {}
  detail::WorldImpl& impl() const { return *impl_; }

 private:
  std::shared_ptr<detail::WorldImpl> impl_;
};

}  // namespace moelane
