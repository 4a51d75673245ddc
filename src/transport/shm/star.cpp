#include "transport/shm/star.hpp"

#include <cstdio>

#include "transport/memory/waiter.hpp"

namespace moelane::detail::shm {
namespace {

constexpr double kGrace = 1;  // seconds

}  // namespace

std::string list_of(const std::vector<int>& ranks, int of) {
  constexpr std::size_t kMost = 16;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size() && i < kMost; ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  }
  if (ranks.size() > kMost) text += " and " + std::to_string(ranks.size() - kMost) + " more";
  return text + " of " + std::to_string(of);
}

std::string world_text(const std::string& name) {
  constexpr std::size_t kMost = 100;
  return "world '" + (name.size() <= kMost ? name : name.substr(0, kMost) + "...") + "'";
}

std::string too_late(const Place& place, const std::string& for_whom, const std::string& doing) {
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%g s", place.timeout);
  return "rank " + std::to_string(place.rank) + " waited " + seconds + " for " + for_whom + " to " + doing;
}

std::string gave_up(int rank, const Place& place, const std::vector<int>& missing, const std::string& doing) {
  return "rank " + std::to_string(rank) + " gave up before " +
         (missing.empty() ? "rank 0" : list_of(missing, place.ranks)) + " could " + doing;
}

std::string went_away(int rank, const std::string& doing) {
  return "rank " + std::to_string(rank) + " went away before all ranks could " + doing;
}

void Star::tell_all(const Message& message, int pass) {
  // A rank that cannot be told has gone, which shows in the next step.
  for (const Fd& link : links_) {
    if (link) send(link, message, pass);
  }
}

void Star::fail_all(ErrorKind kind, const std::string& sentence) {
  tell_all(failure(kind, sentence));
  links_.clear();
  throw Error(kind, sentence);
}

std::vector<Message> Star::collect(const Message& mine, const std::string& doing) {
  const std::int64_t deadline = deadline_after(place_.timeout);
  std::vector<Message> brought(static_cast<std::size_t>(place_.ranks));
  brought[0] = mine;
  std::vector<int> missing;
  for (int r = 1; r < place_.ranks; ++r) missing.push_back(r);
  while (!missing.empty()) {
    std::vector<pollfd> polled;
    for (const int r : missing) polled.push_back({links_[static_cast<std::size_t>(r)].get(), POLLIN, 0});
    if (!poll_until(polled, deadline)) {
      fail_all(ErrorKind::timeout, too_late(place_, list_of(missing, place_.ranks), doing));
    }
    std::vector<int> given_up;
    std::erase_if(missing, [&](int r) {
      const Received got = receive(links_[static_cast<std::size_t>(r)]);
      if (got.got == Got::nothing) return false;
      if (got.got != Got::message) fail_all(ErrorKind::transport, went_away(r, doing));
      if (got.message.kind == Kind::gave_up) given_up.push_back(r);
      brought[static_cast<std::size_t>(r)] = got.message;
      return true;
    });
    if (!given_up.empty()) fail_all(ErrorKind::timeout, gave_up(given_up[0], place_, missing, doing));
  }
  return brought;
}

Received Star::verdict(std::int64_t deadline_ns, const std::string& doing) {
  while (true) {
    pollfd polled{links_[0].get(), POLLIN, 0};
    if (!poll_until({&polled, 1}, deadline_ns)) {
      Message last;
      last.kind = Kind::gave_up;
      // Rank 0, if it is there, answers at once with the names of those who are missing.
      const bool answered = send(links_[0], last) && poll_until({&polled, 1}, deadline_after(kGrace));
      const Received answer = answered ? receive(links_[0]) : Received{};
      links_.clear();
      if (answer.got == Got::message && answer.message.kind == Kind::failed) raise(answer.message);
      throw Error(ErrorKind::timeout, too_late(place_, "the other ranks", doing));
    }
    Received got = receive(links_[0]);
    if (got.got == Got::nothing) continue;
    if (got.got != Got::message) {
      links_.clear();
      throw Error(ErrorKind::transport, went_away(0, doing));
    }
    if (got.message.kind == Kind::failed) raise(got.message);
    return got;
  }
}

Received Star::agree(const Message& mine, const Judge& judge, const Fd& pass, const std::string& doing) {
  if (links_.empty()) {
    throw Error(ErrorKind::transport,
                "rank " + std::to_string(place_.rank) + " cannot " + doing + ": an earlier step has failed");
  }
  if (place_.rank != 0) {
    // If this cannot be sent, rank 0 has gone; what it said before is still to be read.
    send(links_[0], mine);
    return verdict(deadline_after(place_.timeout), doing);
  }
  const std::vector<Message> brought = collect(mine, doing);
  Received result;
  for (const Message& message : brought) {
    if (message.kind != Kind::failed) continue;
    result.message = message;
    tell_all(message);
    raise(message);
  }
  result.got = Got::message;
  result.message = judge(brought);
  tell_all(result.message, pass.get());
  if (result.message.kind == Kind::failed) raise(result.message);
  return result;
}

}  // namespace moelane::detail::shm
