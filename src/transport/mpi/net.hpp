#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "transport/memory/far.hpp"
#include "transport/mpi/api.hpp"
#include "transport/mpi/wire.hpp"

namespace moelane::mpi {

// The messages of one world. Puts are gathered into messages, one open message for each peer, which goes out
// when it is full, when a signal is set, and whenever somebody waits. What has come is carried out by whoever
// calls progress(). Any thread may call, one works at a time; where the MPI library allows only the thread
// that started it, calls of others leave their messages to that one.
class Net {
 public:
  // Joins the processes of the communicator (see Api::open); collective. Throws Error(transport) or
  // Error(timeout).
  Net(const Api& api, const void* communicator, double timeout);
  // Waits, within the timeout, until every peer has ended too, so that MPI can be ended in peace; a moment
  // only after a failure.
  ~Net();
  Net(const Net&) = delete;
  Net& operator=(const Net&) = delete;

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  const Api& api() const { return api_; }
  void* comm() const { return comm_; }

  // The own heap number `heaps`, where records may be carried out from now on, until it is forgotten.
  void know(std::uint32_t heaps, std::byte* base, std::size_t bytes);
  void forget(std::uint32_t heaps);

  void put(int peer, const Record& record, const void* source);  // Record::bytes from `source`
  void progress();

  // As World::all_gather, by messages.
  void all_gather(const void* mine, std::size_t bytes, void* all);
  void note_failure() { failed_ = true; }

 private:
  struct Heap {
    std::byte* base = nullptr;
    std::size_t bytes = 0;
  };
  using Buffer = std::unique_ptr<std::byte[]>;
  struct Letter {  // a message under way
    Buffer bytes;
    std::size_t n = 0;
    Request request = 0;
  };
  struct Peer {
    Buffer open;  // the message that records are gathered in
    std::size_t used = 0;
    std::deque<Letter> sent, coming;
    std::deque<std::byte> gathered;  // of exchanges, not yet read
    bool gone = false;               // said bye
  };

  void check(int error, const char* call, int peer) const;
  bool may_call() const { return any_thread_ || std::this_thread::get_id() == starter_; }
  Peer& peer(int rank) { return peers_[static_cast<std::size_t>(rank)]; }
  Buffer buffer();
  void add(int to, const Record& record, const std::byte* source);
  void send_open(int to);
  void take_messages();
  void carry_out(int source, const std::byte* message, std::size_t n);
  void carry_out(int source, const Record& record, const std::byte* bytes);
  void move();  // with the lock
  template <class Done>
  bool wait_for(double seconds, const Done& done);
  void say_goodbye();

  const Api& api_;
  double timeout_;
  void* comm_ = nullptr;
  int rank_ = 0, ranks_ = 1;
  bool any_thread_ = false;
  std::thread::id starter_;
  std::mutex mutex_;
  std::vector<Peer> peers_;
  std::vector<Buffer> spare_;
  std::map<std::uint32_t, Heap> heaps_;
  std::uint64_t exchange_ = 0;
  std::atomic<bool> failed_{false};
};

// The way to the peers of one set of heaps.
class FarHeaps final : public Far {
 public:
  FarHeaps(std::shared_ptr<Net> net, std::uint32_t number, std::byte* own, std::size_t bytes)
      : net_(std::move(net)), number_(number) {
    net_->know(number_, own, bytes);
  }
  ~FarHeaps() override { net_->forget(number_); }

  void put_signal(int peer, std::uint64_t offset, const void* source, std::size_t bytes, std::uint64_t word,
                  std::uint64_t value, SignalOp op) override {
    net_->put(peer, {op == SignalOp::set ? What::set : What::add, number_, offset, bytes, word, value},
              source);
  }
  void progress() override { net_->progress(); }

 private:
  std::shared_ptr<Net> net_;
  std::uint32_t number_;
};

}  // namespace moelane::mpi
