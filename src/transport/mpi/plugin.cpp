#include <mpi.h>

#include <climits>
#include <cstring>
#include <new>

#include "transport/mpi/api.hpp"

// The table of api.hpp for the MPI library whose mpi.h this is compiled against.
namespace moelane::mpi {
namespace {

struct Comm {
  MPI_Comm comm = MPI_COMM_NULL;
};
MPI_Comm of(void* comm) { return static_cast<Comm*>(comm)->comm; }

template <class Handle>
std::uint64_t packed(Handle handle) {
  static_assert(sizeof(Handle) <= sizeof(std::uint64_t));
  std::uint64_t bits = 0;
  std::memcpy(&bits, &handle, sizeof handle);
  return bits;
}
template <class Handle>
Handle unpacked(std::uint64_t bits) {
  Handle handle;
  std::memcpy(&handle, &bits, sizeof handle);
  return handle;
}

bool started = false;  // by us

int start(int* any_thread) {
  int there = 0, level = MPI_THREAD_SINGLE;
  if (const int error = MPI_Initialized(&there); error != MPI_SUCCESS) return error;
  if (there == 0) {
    if (const int error = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level);
        error != MPI_SUCCESS) {
      return error;
    }
    started = true;
  } else if (const int error = MPI_Query_thread(&level); error != MPI_SUCCESS) {
    return error;
  }
  *any_thread = level >= MPI_THREAD_SERIALIZED ? 1 : 0;
  return 0;
}

void finish() {
  int ended = 0;
  if (started && MPI_Finalized(&ended) == MPI_SUCCESS && ended == 0) MPI_Finalize();
}

void describe(int error, char* text, std::size_t bytes) {
  char all[MPI_MAX_ERROR_STRING + 1] = {};
  int length = 0;
  if (MPI_Error_string(error, all, &length) != MPI_SUCCESS) length = 0;
  for (int i = 0; i < length; ++i) {
    if (all[i] == '\n') all[i] = ' ';  // one sentence, one line
  }
  std::strncpy(text, length > 0 ? all : "an unknown error", bytes - 1);
  text[bytes - 1] = 0;
}

int open(const void* communicator, void** comm, int* rank, int* size, Request* request) {
  const MPI_Comm from =
      communicator == nullptr ? MPI_COMM_WORLD : *static_cast<const MPI_Comm*>(communicator);
  MPI_Comm_rank(from, rank);
  MPI_Comm_size(from, size);
  auto* const made = new (std::nothrow) Comm;
  if (made == nullptr) return MPI_ERR_NO_MEM;
  MPI_Request pending = MPI_REQUEST_NULL;
  const int error = MPI_Comm_idup(from, &made->comm, &pending);
  *comm = made;
  *request = packed(pending);
  return error;
}

int settle(void* comm) { return MPI_Comm_set_errhandler(of(comm), MPI_ERRORS_RETURN); }

int close(void* comm) {
  auto* const mine = static_cast<Comm*>(comm);
  int ended = 0;
  int error = MPI_Finalized(&ended);
  if (error == MPI_SUCCESS && ended == 0) error = MPI_Comm_free(&mine->comm);
  delete mine;
  return error;
}

int send(void* comm, int to, const void* bytes, std::size_t n, Request* request) {
  if (n > INT_MAX) return MPI_ERR_COUNT;
  MPI_Request pending = MPI_REQUEST_NULL;
  const int error = MPI_Isend(bytes, static_cast<int>(n), MPI_BYTE, to, 0, of(comm), &pending);
  *request = packed(pending);
  return error;
}

int probe(void* comm, int* source, std::size_t* n, Message* message) {
  int there = 0, count = 0;
  MPI_Message matched = MPI_MESSAGE_NULL;
  MPI_Status status;
  *source = -1;
  int error = MPI_Improbe(MPI_ANY_SOURCE, 0, of(comm), &there, &matched, &status);
  if (error != MPI_SUCCESS || there == 0) return error;
  error = MPI_Get_count(&status, MPI_BYTE, &count);
  *source = status.MPI_SOURCE;
  *n = static_cast<std::size_t>(count);
  *message = packed(matched);
  return error;
}

int receive(void* bytes, std::size_t n, Message* message, Request* request) {
  auto matched = unpacked<MPI_Message>(*message);
  MPI_Request pending = MPI_REQUEST_NULL;
  const int error = MPI_Imrecv(bytes, static_cast<int>(n), MPI_BYTE, &matched, &pending);
  *request = packed(pending);
  return error;
}

int test(Request* request, int* done) {
  auto pending = unpacked<MPI_Request>(*request);
  const int error = MPI_Test(&pending, done, MPI_STATUS_IGNORE);
  *request = packed(pending);
  return error;
}

int alltoall(void* comm, const void* from, void* to, std::size_t each) {
  if (each > INT_MAX) return MPI_ERR_COUNT;
  const int n = static_cast<int>(each);
  return MPI_Alltoall(from, n, MPI_BYTE, to, n, MPI_BYTE, of(comm));
}

int alltoallv(void* comm, const void* from, const int* counts, const int* offsets, void* to,
              const int* to_counts, const int* to_offsets) {
  return MPI_Alltoallv(from, counts, offsets, MPI_BYTE, to, to_counts, to_offsets, MPI_BYTE, of(comm));
}

constexpr Api kApi = {kApiVersion, MOELANE_MPI_LIBRARY,
                      start,       finish,
                      describe,    open,
                      settle,      close,
                      send,        probe,
                      receive,     test,
                      alltoall,    alltoallv};

}  // namespace
}  // namespace moelane::mpi

extern "C" __attribute__((visibility("default"))) const moelane::mpi::Api* moelane_mpi_api() {
  return &moelane::mpi::kApi;
}
