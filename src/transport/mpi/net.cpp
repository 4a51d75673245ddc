#include "transport/mpi/net.hpp"

#include <sched.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>

#include "core/order.hpp"
#include "cpu/rows.hpp"
#include "moelane/error.hpp"
#include "transport/memory/waiter.hpp"
#include "transport/mpi/load.hpp"

namespace moelane::mpi {
namespace {

constexpr std::size_t kSpare = 64;             // messages' memory that is kept for the next
constexpr double kPatienceAfterFailure = 0.5;  // seconds

std::string seconds_text(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%g s", seconds);
  return text;
}

}  // namespace

void Net::check(int error, const char* call, int peer) const {
  if (error == 0) return;
  char why[512];
  api_.describe(error, why, sizeof why);
  throw Error(ErrorKind::transport, "rank " + std::to_string(rank_) + " cannot " + call +
                                        (peer < 0 ? "" : " rank " + std::to_string(peer)) + ": " +
                                        api_.library + " says: " + why);
}

// Calls `done` until it is true, with naps that grow; false when the time is over.
template <class Done>
bool Net::wait_for(double seconds, const Done& done) {
  const std::int64_t start = now_ns(), deadline = deadline_after(seconds);
  while (!done()) {
    const std::int64_t now = now_ns();
    if (now >= deadline) return false;
    sched_yield();
    if (now - start < 100'000) continue;
    const timespec nap{0, std::min(nap_between_looks(now - start), deadline - now)};
    nanosleep(&nap, nullptr);
  }
  return true;
}

Net::Net(const Api& api, const void* communicator, double timeout) : api_(api), timeout_(timeout) {
  int any_thread = 0;
  check(api_.start(&any_thread), "start MPI", -1);
  any_thread_ = any_thread != 0;
  starter_ = std::this_thread::get_id();
  Request request = 0;
  check(api_.open(communicator, &comm_, &rank_, &ranks_, &request), "join the world", -1);
  const bool joined = wait_for(timeout_, [&] {
    int done = 0;
    check(api_.test(&request, &done), "join the world", -1);
    return done != 0;
  });
  if (!joined) {
    throw Error(ErrorKind::timeout, "rank " + std::to_string(rank_) + " waited " + seconds_text(timeout_) +
                                        " for the other ranks of " + std::to_string(ranks_) +
                                        " to join a world over MPI");
  }
  check(api_.settle(comm_), "join the world", -1);
  peers_.resize(static_cast<std::size_t>(ranks_));
}

Net::~Net() {
  try {
    say_goodbye();
  } catch (const Error&) {
    // Then the job does not end in peace; its launcher sees to that.
  }
}

void Net::say_goodbye() {
  for (int to = 0; to < ranks_; ++to) {
    if (to == rank_) continue;
    const std::lock_guard lock(mutex_);
    add(to, {What::bye}, nullptr);
  }
  const auto quiet = [&] {
    const std::lock_guard lock(mutex_);
    move();
    for (int other = 0; other < ranks_; ++other) {
      const Peer& p = peer(other);
      if (other != rank_ && (!p.gone || p.used > 0 || !p.sent.empty())) return false;
    }
    return true;
  };
  if (may_call() && wait_for(failed_ ? std::min(kPatienceAfterFailure, timeout_) : timeout_, quiet)) {
    api_.close(comm_);
    return;
  }
  // MPI may still read what is on its way.
  for (Peer& p : peers_) {
    for (auto* letters : {&p.sent, &p.coming}) {
      for (Letter& letter : *letters) static_cast<void>(letter.bytes.release());
    }
  }
  left_in_discord();
}

void Net::know(std::uint32_t heaps, std::byte* base, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  heaps_[heaps] = {base, bytes};
}

void Net::forget(std::uint32_t heaps) {
  const std::lock_guard lock(mutex_);
  heaps_.erase(heaps);
}

Net::Buffer Net::buffer() {
  if (spare_.empty()) return Buffer(new std::byte[kMessageBytes]);
  Buffer last = std::move(spare_.back());
  spare_.pop_back();
  return last;
}

void Net::put(int to, const Record& record, const void* source) {
  const std::lock_guard lock(mutex_);
  const auto* from = static_cast<const std::byte*>(source);
  Record piece = record;
  constexpr std::size_t kMost = kMessageBytes - sizeof(Record);
  for (piece.what = What::data; piece.bytes > kMost; piece.bytes -= kMost) {
    Record full = piece;
    full.bytes = kMost;
    add(to, full, from);
    from += kMost;
    piece.offset += kMost;
  }
  piece.what = record.what;
  add(to, piece, from);
  if (record.what != What::add && may_call()) send_open(to);
}

void Net::add(int to, const Record& record, const std::byte* source) {
  Peer& p = peer(to);
  const std::size_t more = sizeof record + padded(record.bytes);
  if (p.used + more > kMessageBytes) send_open(to);
  if (p.used == 0) p.open = buffer();
  std::memcpy(p.open.get() + p.used, &record, sizeof record);
  if (record.bytes > 0) std::memcpy(p.open.get() + p.used + sizeof record, source, record.bytes);
  p.used += more;
}

void Net::send_open(int to) {
  Peer& p = peer(to);
  if (p.used == 0) return;
  Letter letter{std::move(p.open), p.used, 0};
  p.used = 0;
  check(api_.send(comm_, to, letter.bytes.get(), letter.n, &letter.request), "send to", to);
  p.sent.push_back(std::move(letter));
}

void Net::progress() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock.owns_lock()) move();
}

void Net::move() {
  if (!may_call()) return;
  for (int other = 0; other < ranks_; ++other) {
    send_open(other);
    Peer& p = peer(other);
    for (int done = 1; done != 0 && !p.sent.empty();) {
      check(api_.test(&p.sent.front().request, &done), "send to", other);
      if (done == 0) break;
      if (spare_.size() < kSpare) spare_.push_back(std::move(p.sent.front().bytes));
      p.sent.pop_front();
    }
  }
  take_messages();
  for (int source = 0; source < ranks_; ++source) {
    Peer& p = peer(source);
    while (!p.coming.empty()) {
      Letter& letter = p.coming.front();
      int done = 0;
      check(api_.test(&letter.request, &done), "receive from", source);
      if (done == 0) break;
      carry_out(source, letter.bytes.get(), letter.n);
      if (spare_.size() < kSpare) spare_.push_back(std::move(letter.bytes));
      p.coming.pop_front();
    }
  }
}

void Net::take_messages() {
  while (true) {
    int source = -1;
    Letter letter;
    Message message = 0;
    check(api_.probe(comm_, &source, &letter.n, &message), "look for messages", -1);
    if (source < 0) return;
    if (letter.n > kMessageBytes || source >= ranks_) {
      throw Error(ErrorKind::transport, "rank " + std::to_string(rank_) + " was sent a message of " +
                                            std::to_string(letter.n) + " bytes by rank " +
                                            std::to_string(source) + ", allowed are " +
                                            std::to_string(kMessageBytes));
    }
    letter.bytes = buffer();
    check(api_.receive(letter.bytes.get(), letter.n, &message, &letter.request), "receive from", source);
    peer(source).coming.push_back(std::move(letter));
  }
}

void Net::carry_out(int source, const std::byte* message, std::size_t n) {
  for (std::size_t at = 0; at < n;) {
    Record record;
    const std::size_t left = n - at;
    bool whole = left >= sizeof record;
    if (whole) std::memcpy(&record, message + at, sizeof record);
    whole = whole && record.bytes <= left - sizeof record && padded(record.bytes) <= left - sizeof record;
    if (!whole) {
      throw Error(ErrorKind::transport, "rank " + std::to_string(rank_) +
                                            " was sent a broken message by rank " + std::to_string(source));
    }
    carry_out(source, record, message + at + sizeof record);
    at += sizeof record + padded(record.bytes);
  }
}

void Net::carry_out(int source, const Record& record, const std::byte* bytes) {
  Peer& p = peer(source);
  if (record.what == What::bye) {
    p.gone = true;
    return;
  }
  if (record.what == What::gather) {
    p.gathered.insert(p.gathered.end(), bytes, bytes + record.bytes);
    return;
  }
  const auto found = heaps_.find(record.heaps);
  if (found == heaps_.end()) return;  // its engine has ended here: nobody will look
  const Heap& heap = found->second;
  const bool signals = record.what != What::data;
  if (record.offset > heap.bytes || record.bytes > heap.bytes - record.offset ||
      (signals && (record.word % 8 != 0 || record.word > heap.bytes - 8)) || record.what > What::add) {
    throw Error(ErrorKind::transport,
                "rank " + std::to_string(rank_) + " was sent a put of " + std::to_string(record.bytes) +
                    " bytes at " + std::to_string(record.offset) + " by rank " + std::to_string(source) +
                    ", allowed is what lies within the heap of " + std::to_string(heap.bytes));
  }
  cpu::copy(heap.base + record.offset, bytes, record.bytes, cpu::Store::cached);
  if (!signals) return;
  const std::atomic_ref<std::uint64_t> word(*reinterpret_cast<std::uint64_t*>(heap.base + record.word));
  if (record.what == What::set) {
    word.store(record.value, order::kSignalStore);
  } else {
    word.fetch_add(record.value, order::kSignalAdd);
  }
}

void Net::all_gather(const void* mine, std::size_t bytes, void* all) {
  const char nothing = 0;
  std::vector<std::byte> aside(static_cast<std::size_t>(ranks_));
  if (bytes == 0) {  // a barrier
    mine = &nothing;
    all = aside.data();
    bytes = 1;
  }
  ++exchange_;
  for (int i = 1; i < ranks_; ++i) {
    const auto* from = static_cast<const std::byte*>(mine);
    constexpr std::size_t kMost = kMessageBytes - sizeof(Record);
    for (std::size_t done = 0; done < bytes; done += kMost) {
      Record record{What::gather};
      record.bytes = std::min(kMost, bytes - done);
      put((rank_ + i) % ranks_, record, from + done);
    }
  }
  auto* const to = static_cast<std::byte*>(all);
  std::memcpy(to + static_cast<std::size_t>(rank_) * bytes, mine, bytes);
  int missing = 0;  // the first rank of which not all is here
  const auto here = [&] {
    const std::lock_guard lock(mutex_);
    move();
    for (; missing < ranks_; ++missing) {
      std::deque<std::byte>& gathered = peer(missing).gathered;
      if (missing == rank_) continue;
      if (gathered.size() < bytes) return false;
      const auto end = gathered.begin() + static_cast<std::ptrdiff_t>(bytes);
      std::copy(gathered.begin(), end, to + static_cast<std::size_t>(missing) * bytes);
      gathered.erase(gathered.begin(), end);
    }
    return true;
  };
  if (wait_for(timeout_, here)) return;
  failed_ = true;
  throw Error(ErrorKind::timeout, "rank " + std::to_string(rank_) + " waited " + seconds_text(timeout_) +
                                      " for rank " + std::to_string(missing) + " in exchange " +
                                      std::to_string(exchange_) + " of the world: saw " +
                                      std::to_string(peer(missing).gathered.size()) + " bytes, needed " +
                                      std::to_string(bytes));
}

}  // namespace moelane::mpi
