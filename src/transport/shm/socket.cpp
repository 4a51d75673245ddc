#include "transport/shm/socket.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstdio>
#include <cstring>

#include "transport/memory/waiter.hpp"

namespace moelane::detail::shm {
namespace {

[[noreturn]] void refused(const char* what) {
  throw Error(ErrorKind::transport, std::string(what) + ": " + std::strerror(errno));
}

struct Address {
  sockaddr_un un{};
  socklen_t bytes = 0;
};

// An abstract name: the kernel forgets it with the socket, however the process ends. A name that does not fit
// is cut and told apart by its hash (FNV-1a).
Address address_of(const std::string& name) {
  std::string full = "moelane/" + std::to_string(geteuid()) + "/";
  Address address;
  constexpr std::size_t kRoom = sizeof address.un.sun_path - 1;
  if (full.size() + name.size() <= kRoom) {
    full += name;
  } else {
    std::uint64_t hash = 0xcbf29ce484222325;
    for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    char digits[18];
    std::snprintf(digits, sizeof digits, "#%016llx", static_cast<unsigned long long>(hash));
    full += name.substr(0, kRoom - full.size() - 17) + digits;
  }
  address.un.sun_family = AF_UNIX;
  std::memcpy(address.un.sun_path + 1, full.data(), full.size());
  address.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + full.size());
  return address;
}

Fd new_socket() {
  Fd made(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!made) refused("no socket for the ranks to meet at");
  return made;
}

const sockaddr* generic(const Address& address) { return reinterpret_cast<const sockaddr*>(&address.un); }

}  // namespace

Fd::~Fd() {
  if (fd_ >= 0) close(fd_);
}

Message failure(ErrorKind kind, const std::string& sentence) {
  Message message;
  message.kind = Kind::failed;
  message.error = static_cast<std::uint32_t>(kind);
  sentence.copy(message.sentence, sizeof message.sentence - 1);
  return message;
}

void raise(const Message& failed) {
  const bool known = failed.error <= static_cast<std::uint32_t>(ErrorKind::transport);
  throw Error(known ? static_cast<ErrorKind>(failed.error) : ErrorKind::transport, failed.sentence);
}

bool send(const Fd& socket, const Message& message, int pass) {
  iovec part{const_cast<Message*>(&message), sizeof message};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (pass >= 0) {
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    cmsghdr* const rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(rights), &pass, sizeof pass);
  }
  // A full buffer is an end too: in this protocol nobody has more than a few messages on their way.
  ssize_t sent;
  do sent = sendmsg(socket.get(), &header, MSG_NOSIGNAL | MSG_DONTWAIT);
  while (sent < 0 && errno == EINTR);
  return sent == static_cast<ssize_t>(sizeof message);
}

Received receive(const Fd& socket) {
  Received received;
  iovec part{&received.message, sizeof received.message};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = CMSG_LEN(sizeof(int));  // room for one descriptor; the kernel drops more
  // Another end that closed without reading everything shows as an error before what it had sent: look twice.
  ssize_t bytes;
  int resets = 0;
  do bytes = recvmsg(socket.get(), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  while (bytes < 0 && (errno == EINTR || (errno == ECONNRESET && ++resets == 1)));
  if (bytes < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return received;
  if (bytes <= 0) {
    received.got = Got::closed;
    return received;
  }
  for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS || c->cmsg_len != CMSG_LEN(sizeof(int)))
      continue;
    int fd;
    std::memcpy(&fd, CMSG_DATA(c), sizeof fd);
    received.fd = Fd(fd);
  }
  Message& message = received.message;
  received.got = Got::rubbish;
  if (bytes < static_cast<ssize_t>(offsetof(Message, kind)) || message.magic != kMagic) return received;
  if (message.version != kVersion) received.got = Got::foreign;
  if (message.version != kVersion || bytes != sizeof message || (header.msg_flags & MSG_TRUNC) != 0)
    return received;
  message.sentence[sizeof message.sentence - 1] = 0;
  received.got = Got::message;
  return received;
}

bool poll_until(std::span<pollfd> sockets, std::int64_t deadline_ns) {
  while (true) {
    const std::int64_t now = now_ns();
    if (now >= deadline_ns) return false;
    const std::int64_t ms = deadline_ns == INT64_MAX ? -1 : (deadline_ns - now + 999'999) / 1'000'000;
    const int ready =
        ::poll(sockets.data(), sockets.size(), static_cast<int>(std::min<std::int64_t>(ms, INT_MAX)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) refused("no way to wait for the ranks");
  }
}

void nap_until(std::int64_t wake_ns) {
  const timespec wake{wake_ns / 1'000'000'000, wake_ns % 1'000'000'000};
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &wake, nullptr);
}

std::optional<Peer> peer_of(const Fd& socket) {
  ucred credentials{};
  socklen_t bytes = sizeof credentials;
  if (getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &bytes) != 0) return std::nullopt;
  return Peer{credentials.uid, credentials.pid};
}

bool same_user(const Peer& peer) { return peer.user == geteuid(); }

std::optional<Fd> listen_at(const std::string& name) {
  Fd socket = new_socket();
  const Address address = address_of(name);
  if (bind(socket.get(), generic(address), address.bytes) != 0) {
    if (errno == EADDRINUSE) return std::nullopt;
    refused("no name for the ranks to meet at");
  }
  if (listen(socket.get(), SOMAXCONN) != 0) refused("no socket for the ranks to meet at");
  return socket;
}

std::optional<Fd> connect_to(const std::string& name) {
  Fd socket = new_socket();
  const Address address = address_of(name);
  if (connect(socket.get(), generic(address), address.bytes) == 0) return socket;
  // Nobody there yet, too many in the queue, or a signal came: all to be tried again.
  if (errno == ECONNREFUSED || errno == EAGAIN || errno == EINTR) return std::nullopt;
  refused("no connection to rank 0");
}

Fd accept_from(const Fd& listener) {
  while (true) {
    Fd guest(accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (guest || errno == EAGAIN || errno == EWOULDBLOCK) return guest;
    if (errno != EINTR && errno != ECONNABORTED) refused("no connection from a rank");
  }
}

}  // namespace moelane::detail::shm
