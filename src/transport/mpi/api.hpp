#pragma once

#include <cstddef>
#include <cstdint>

// What moelane asks of an MPI library. MPI's binary interfaces differ, so each library has a plug-in of its
// own (plugin.cpp, compiled against its mpi.h), which is loaded when a world over MPI is made; nothing else
// knows MPI. Only nonblocking messages between two ranks are used: an RMA flush may wait for the target.
namespace moelane::mpi {

inline constexpr int kApiVersion = 1;

// MPI's own handles, whatever they are (an int, a pointer).
using Request = std::uint64_t;
using Message = std::uint64_t;

// Functions give 0, or an error code that describe() makes a text of. Those that are not told otherwise
// return at once.
struct Api {
  int version;          // kApiVersion
  const char* library;  // "Open MPI" or "MPICH"

  // Initialises MPI unless the application has. `any_thread`: whether any thread may call, one at a time;
  // otherwise only the one that called this.
  int (*start)(int* any_thread);
  // Ends MPI if start() began it and the application has not ended it. Waits for all processes of the job.
  void (*finish)();
  void (*describe)(int error, char* text, std::size_t bytes);

  // Begins to duplicate *communicator (an MPI_Comm of the application; null: MPI_COMM_WORLD). Collective;
  // done when the request is, and then to be settled: from there on its errors are returned, not fatal.
  int (*open)(const void* communicator, void** comm, int* rank, int* size, Request* request);
  int (*settle)(void* comm);
  int (*close)(void* comm);

  // Bytes must stay as they are until the request is done.
  int (*send)(void* comm, int to, const void* bytes, std::size_t n, Request* request);
  // The next message that has come from anybody, to be received: messages of one source come in the order in
  // which they were sent. `source` is -1 when there is none.
  int (*probe)(void* comm, int* source, std::size_t* n, Message* message);
  int (*receive)(void* bytes, std::size_t n, Message* message, Request* request);
  int (*test)(Request* request, int* done);

  // Collective, blocking; for baselines. Counts and offsets in bytes, by rank.
  int (*alltoall)(void* comm, const void* from, void* to, std::size_t each);
  int (*alltoallv)(void* comm, const void* from, const int* counts, const int* offsets, void* to,
                   const int* to_counts, const int* to_offsets);
};

}  // namespace moelane::mpi

// What a plug-in exports.
extern "C" const moelane::mpi::Api* moelane_mpi_api();
