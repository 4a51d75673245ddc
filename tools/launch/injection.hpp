#pragma once

#include <string>

// What --inject asks of a rank, where it takes more than that rank.
namespace moelane::tools {

// Thrown by an injected death, in the transport where a rank is a thread.
struct InjectedDeath {
  std::string sentence;
};

// The injected stall of a rank. Once all other ranks have ended without success nobody needs to see more of
// it: a process is then ended by its parent, a thread by an InjectedDeath.
void stall(int rank, double seconds);

// Whether all ranks but one have given up, where ranks are threads: ends the stall of that one.
void set_others_gave_up(bool value);

// The sentence about a stalled rank that was ended.
std::string still_stalled(int rank);

}  // namespace moelane::tools
