#pragma once

#include <poll.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "moelane/error.hpp"

// What the ranks of one machine say to each other before they share memory: messages of one fixed size over
// sockets that keep messages apart (SOCK_SEQPACKET), at a name that no file system sees. No call here blocks
// past its deadline, raises SIGPIPE or trusts what it reads.
namespace moelane::detail::shm {

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  ~Fd();
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

enum class Kind : std::uint32_t {
  hello,    // a rank to rank 0: rank, ranks
  welcome,  // rank 0: you are in; the others are still missing
  go,       // rank 0: everybody has done this step
  ask,      // a rank: I need heaps of `bytes`, the first `committed` of mine at once
  heaps,    // rank 0: here they are, `bytes` each (with the memory's descriptor)
  mapped,   // a rank: I have mapped them
  gave_up,  // a rank: my time is over
  failed,   // anybody: `error` and a sentence
};

inline constexpr std::uint64_t kMagic = 0x656e616c656f6d00;  // "\0moelane"
inline constexpr std::uint32_t kVersion = 1;

struct Message {
  std::uint64_t magic = kMagic;
  std::uint32_t version = kVersion;
  Kind kind = Kind::failed;
  std::int32_t rank = 0;
  std::int32_t ranks = 0;
  std::uint64_t bytes = 0;
  std::uint64_t committed = 0;
  std::uint32_t error = 0;
  char sentence[980] = {};
};
static_assert(sizeof(Message) == 1024 && offsetof(Message, version) == 8);

Message failure(ErrorKind kind, const std::string& sentence);
[[noreturn]] void raise(const Message& failed);

enum class Got : std::uint8_t {
  message,
  nothing,  // not yet
  closed,
  foreign,  // our magic, another version
  rubbish,
};

struct Received {
  Got got = Got::nothing;
  Message
      message;  // if `message`: magic and version are right and the sentence ends; nothing else is checked
  Fd fd;        // what came with it
};

// Does not wait. `pass`: a descriptor to hand over, or -1. False when the other end is gone.
bool send(const Fd& socket, const Message& message, int pass = -1);
Received receive(const Fd& socket);

// Waits until one of `sockets` has news; false when the deadline passes first.
bool poll_until(std::span<pollfd> sockets, std::int64_t deadline_ns);
void nap_until(std::int64_t wake_ns);

// Who is at the other end; the process is 0 where it cannot be seen from here.
struct Peer {
  uid_t user;
  pid_t process;
};
std::optional<Peer> peer_of(const Fd& socket);
bool same_user(const Peer& peer);

// The rendezvous of this user's world `name`. listen_at: none when the name is taken; connect_to: none when
// nobody listens there (yet). Both throw Error(transport) when the system refuses.
std::optional<Fd> listen_at(const std::string& name);
std::optional<Fd> connect_to(const std::string& name);
Fd accept_from(const Fd& listener);  // empty when nobody is waiting

}  // namespace moelane::detail::shm
