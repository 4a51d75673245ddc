#include <poll.h>

#include "process/shm_help.hpp"

// Who comes to a world's rendezvous without being one of its ranks.
namespace moelane::test {
namespace {

using detail::shm::Fd;
using detail::shm::Kind;
using detail::shm::Message;
using detail::shm::send;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

TEST(ShmStrangers, StrangersAreShownOut) {
  const std::string name = fresh_name();
  Child zero = joining(name, 0, 3, 30, exchange);
  std::vector<Fd> silent;
  for (int i = 0; i < 100; ++i) silent.push_back(stranger(name));
  stranger(name);  // hangs up
  Child one = joining(name, 1, 3, 30, exchange);
  std::vector<Fd> rude;
  for (const std::size_t bytes :
       {std::size_t{1}, sizeof(Message) - 1, sizeof(Message), sizeof(Message) * 8}) {
    const std::vector<char> rubbish(bytes, 'x');
    rude.push_back(stranger(name));
    EXPECT_EQ(::send(rude.back().get(), rubbish.data(), bytes, 0), static_cast<ssize_t>(bytes));
  }
  for (const int rank : {-5, 0, 3, 1 << 30}) {  // no process that uses the library says these
    Message hello;
    hello.kind = Kind::hello;
    hello.rank = rank;
    hello.ranks = 3;
    rude.push_back(stranger(name));
    send(rude.back(), hello, 1);  // and hands over a descriptor
  }
  for (const std::uint32_t kind : {1u, 2u, 3u, 77u}) {
    Message message;
    message.kind = static_cast<Kind>(kind);
    message.rank = 1;
    message.ranks = 3;
    rude.push_back(stranger(name));
    send(rude.back(), message);
  }
  // Each was hung up on, without a word.
  for (const Fd& guest : rude) {
    char byte;
    pollfd polled{guest.get(), POLLIN, 0};
    ASSERT_EQ(poll(&polled, 1, 5000), 1);
    EXPECT_LE(recv(guest.get(), &byte, 1, MSG_DONTWAIT), 0);
  }
  const Stopwatch watch;
  Child two = joining(name, 2, 3, 30, exchange);
  for (Child* child : {&zero, &one, &two}) EXPECT_EQ(child->join(), "");
  EXPECT_LT(watch.seconds(), 3);
}

TEST(ShmStrangers, AnotherVersionIsNamed) {
  const std::string name = fresh_name();
  Child zero = joining(name, 0, 2, 30);
  const Fd guest = stranger(name);
  Message hello;
  hello.version = 99;
  send(guest, hello);
  EXPECT_THAT(zero.join(),
              AllOf(StartsWith("mismatch: a rank (process"), HasSubstr("another version of moelane")));
  // And the other way round: a rank 0 of another version.
  const auto door = detail::shm::listen_at(name);
  ASSERT_TRUE(door);
  Child one = joining(name, 1, 2, 30);
  pollfd polled{door->get(), POLLIN, 0};
  ASSERT_EQ(poll(&polled, 1, 5000), 1);
  const Fd knocking = detail::shm::accept_from(*door);
  send(knocking, hello);
  EXPECT_THAT(one.join(), AllOf(StartsWith("mismatch: rank 0"), HasSubstr("another version of moelane")));
}

TEST(ShmStrangers, OtherUsersStayOutside) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can play another user";
  constexpr uid_t kOther = 65534;
  const std::string name = fresh_name();
  Child zero = joining(name, 0, 2, 0.6);
  Child other([&] {
    EXPECT_EQ(setresuid(kOther, kOther, kOther), 0);
    const auto [address, bytes] = address_of(0, name);
    pause_for(0.2);
    const Fd link(::socket(AF_UNIX, SOCK_SEQPACKET, 0));
    EXPECT_EQ(connect(link.get(), reinterpret_cast<const sockaddr*>(&address), bytes), 0);
    Message hello;
    hello.kind = Kind::hello;
    hello.rank = 1;
    hello.ranks = 2;
    send(link, hello);
    char byte;
    EXPECT_LE(recv(link.get(), &byte, 1, 0), 0);
    return std::string();
  });
  EXPECT_EQ(other.join(), "");
  EXPECT_THAT(zero.join(), StartsWith("timeout: rank 0 waited 0.6 s for rank 1 of 2"));

  const std::string taken = fresh_name();
  Child thief([&] {
    EXPECT_EQ(setresuid(kOther, kOther, kOther), 0);
    const auto [address, bytes] = address_of(0, taken);
    const Fd door(::socket(AF_UNIX, SOCK_SEQPACKET, 0));
    EXPECT_EQ(bind(door.get(), reinterpret_cast<const sockaddr*>(&address), bytes), 0);
    EXPECT_EQ(listen(door.get(), 5), 0);
    pause_for(30);
    return std::string();
  });
  Child one = joining(taken, 1, 2, 10);
  EXPECT_EQ(one.join(), "transport: another user holds the name of world '" + taken + "'");
  thief.kill();
  thief.join();
}

}  // namespace
}  // namespace moelane::test
