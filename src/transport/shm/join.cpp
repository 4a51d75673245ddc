#include <algorithm>

#include "transport/memory/waiter.hpp"
#include "transport/shm/star.hpp"

// How the ranks of a world find each other. Rank 0 listens at the world's name; the others knock until it
// opens. Anybody of this user may knock: who is silent, talks nonsense or hangs up is shown out, and nobody
// waits for one guest.
namespace moelane::detail::shm {
namespace {

constexpr std::size_t kMostStrangers =
    64;  // that have not said who they are; the one who came first goes first

std::string process_text(const Fd& link) {
  const std::optional<Peer> peer = peer_of(link);
  return peer && peer->process > 0 ? " (process " + std::to_string(peer->process) + ")" : "";
}

std::string name_taken(const Place& place) {
  std::optional<Fd> holder = connect_to(place.world);
  return world_text(place.world) + " has a rank 0 already" + (holder ? process_text(*holder) : "") +
         ", which waits for its other ranks; worlds that are joined at one time need different names";
}

Message named(Kind kind, const Place& place) {
  Message message;
  message.kind = kind;
  message.rank = place.rank;
  message.ranks = place.ranks;
  return message;
}

}  // namespace

Star::Star(Place place) : place_(std::move(place)) {
  if (place_.rank != 0) {
    knock();
    return;
  }
  open_house();  // the door is shut again before anybody goes on, and perhaps joins another world of this
                 // name
  tell_all(named(Kind::go, place_));
}

std::vector<int> Star::missing() const {
  std::vector<int> ranks;
  for (int r = 1; r < place_.ranks; ++r) {
    if (!links_[static_cast<std::size_t>(r)]) ranks.push_back(r);
  }
  return ranks;
}

// Whether all that were admitted are still there.
void Star::look_in(const std::string& doing) {
  for (int r = 1; r < place_.ranks; ++r) {
    const Fd& link = links_[static_cast<std::size_t>(r)];
    const Received said = link ? receive(link) : Received{};
    if (said.got == Got::nothing) continue;
    if (said.got == Got::message && said.message.kind == Kind::gave_up) {
      fail_all(ErrorKind::timeout, gave_up(r, place_, missing(), doing) + twice_);
    }
    fail_all(ErrorKind::transport, went_away(r, doing));
  }
}

// Takes in a guest who has spoken, if it is a rank of ours. One with another idea of the world ends the
// world: it would be missing in the end.
void Star::admit(Fd& guest, const Received& said) {
  const Message& hello = said.message;
  std::string other;
  if (said.got == Got::foreign) {
    other = "a rank" + process_text(guest) + " came to " + world_text(place_.world) +
            " with another version of moelane than rank 0's";
  } else if (said.got != Got::message || hello.kind != Kind::hello || hello.rank < 1 ||
             hello.rank >= hello.ranks) {
    return;
  } else if (hello.ranks != place_.ranks) {
    other = "rank " + std::to_string(hello.rank) + process_text(guest) + " came to " +
            world_text(place_.world) + " of " + std::to_string(hello.ranks) +
            " ranks, but rank 0 opened it for " + std::to_string(place_.ranks);
  }
  if (!other.empty()) {
    send(guest, failure(ErrorKind::mismatch, other));
    fail_all(ErrorKind::mismatch, other);
  }
  const std::string name = "rank " + std::to_string(hello.rank);
  Fd& link = links_[static_cast<std::size_t>(hello.rank)];
  if (link) {
    send(guest, failure(ErrorKind::argument,
                        name + " of " + world_text(place_.world) + " is there already" + process_text(link)));
    twice_ = "; " + name + " came twice";
  } else if (send(guest, named(Kind::welcome, place_))) {
    link = std::move(guest);
  }
}

void Star::open_house() {
  const std::int64_t deadline = deadline_after(place_.timeout);
  const std::string doing = "join " + world_text(place_.world);
  const std::optional<Fd> door = listen_at(place_.world);
  if (!door) throw Error(ErrorKind::argument, name_taken(place_));
  links_.resize(static_cast<std::size_t>(place_.ranks));
  std::vector<Fd> strangers;
  for (std::vector<int> absent = missing(); !absent.empty(); absent = missing()) {
    std::vector<pollfd> polled{{door->get(), POLLIN, 0}};
    for (const Fd& stranger : strangers) polled.push_back({stranger.get(), POLLIN, 0});
    for (const Fd& link : links_) {
      if (link) polled.push_back({link.get(), POLLIN, 0});
    }
    if (!poll_until(polled, deadline)) {
      fail_all(ErrorKind::timeout, too_late(place_, list_of(absent, place_.ranks), doing) + twice_);
    }
    look_in(doing);
    std::erase_if(strangers, [&](Fd& stranger) {
      const Received said = receive(stranger);
      if (said.got == Got::nothing) return false;
      admit(stranger, said);
      return true;
    });
    if (polled[0].revents == 0) continue;
    Fd guest = accept_from(*door);
    const std::optional<Peer> peer = guest ? peer_of(guest) : std::nullopt;
    if (peer && same_user(*peer)) strangers.push_back(std::move(guest));
    if (strangers.size() > kMostStrangers) strangers.erase(strangers.begin());
  }
}

void Star::knock() {
  const std::int64_t deadline = deadline_after(place_.timeout);
  const std::string doing = "join " + world_text(place_.world);
  std::int64_t nap = 500'000;
  while (true) {
    std::optional<Fd> link = connect_to(place_.world);
    if (link) {
      const std::optional<Peer> host = peer_of(*link);
      if (!host || !same_user(*host)) {
        throw Error(ErrorKind::transport, "another user holds the name of " + world_text(place_.world));
      }
      // Whoever hangs up before the welcome was not, or is no longer, the rank 0 that we look for.
      Received answer;
      if (send(*link, named(Kind::hello, place_))) {
        pollfd polled{link->get(), POLLIN, 0};
        if (poll_until({&polled, 1}, deadline)) answer = receive(*link);
      }
      if (answer.got == Got::foreign) {
        throw Error(ErrorKind::mismatch, "rank 0 opened " + world_text(place_.world) +
                                             " with another version of moelane than rank " +
                                             std::to_string(place_.rank) + "'s");
      }
      if (answer.got == Got::message && answer.message.kind == Kind::failed) raise(answer.message);
      if (answer.got == Got::message && answer.message.kind == Kind::welcome) {
        links_.push_back(std::move(*link));
        verdict(deadline, doing);
        return;
      }
    }
    const std::int64_t now = now_ns();
    if (now >= deadline) throw Error(ErrorKind::timeout, too_late(place_, "rank 0", doing));
    nap_until(std::min(now + nap, deadline));
    nap = std::min<std::int64_t>(nap * 2, 20'000'000);
  }
}

}  // namespace moelane::detail::shm
