#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "transport/shm/socket.hpp"

namespace moelane::detail::shm {

// Who joins what.
struct Place {
  std::string world;
  int rank, ranks;
  double timeout;  // seconds, for every step that all ranks take together
};

// The sockets between rank 0 and every other rank, and the one thing the ranks do over them: they agree. All
// methods are collective. A rank that runs out of time, finds another gone, or hears that somebody failed,
// throws; whenever rank 0 can still say so, every rank throws, with the same sentence.
class Star {
 public:
  using Judge = std::function<Message(const std::vector<Message>&)>;

  // Comes back when all ranks are there (join.cpp).
  explicit Star(Place place);

  // Every rank brings `mine`; rank 0 hands all of them, in rank order, to `judge` (called there only, and
  // only when nobody brought a failure). Its verdict goes to everyone, together with the descriptor `pass` if
  // there is one.
  Received agree(const Message& mine, const Judge& judge, const Fd& pass, const std::string& doing);

  const Place& place() const { return place_; }

 private:
  void open_house();
  void look_in(const std::string& doing);
  void admit(Fd& guest, const Received& said);
  std::vector<int> missing() const;
  void knock();
  std::vector<Message> collect(const Message& mine, const std::string& doing);
  Received verdict(std::int64_t deadline_ns, const std::string& doing);
  void tell_all(const Message& message, int pass = -1);
  [[noreturn]] void fail_all(ErrorKind kind, const std::string& sentence);

  Place place_;
  std::string
      twice_;  // what rank 0 has to add about ranks that came twice: it explains why others are missing
  std::vector<Fd>
      links_;  // rank 0: [ranks], its own empty; others: [1]; none after a failure that parted the ranks
};

// Sentences. `doing` is what all ranks were to do: "join world 'x'".
std::string too_late(const Place& place, const std::string& for_whom, const std::string& doing);
std::string gave_up(int rank, const Place& place, const std::vector<int>& missing, const std::string& doing);
std::string went_away(int rank, const std::string& doing);
std::string list_of(const std::vector<int>& ranks, int of);  // "ranks 3, 5 of 8"; long lists are cut
std::string world_text(const std::string& name);             // "world 'x'", long names are cut

}  // namespace moelane::detail::shm
